package gateway

import (
	"container/heap"
	"container/list"
)

// queues are requests that wait, in a queue for each user. Whose turn it is costs the logarithm of how many users wait:
// thousands of requests may, and each that comes or goes asks.
type queues struct {
	of      map[string]*queue
	turns   turns
	waiting int
}

// queue has the requests of a user, in the order in which they came.
type queue struct {
	user   string
	seats  int    // that the user has
	served uint64 // when the last one of it got a seat
	list   *list.List
	place  int // among the turns
}

// since is when it began to wait for its next turn: users who have as many seats take turns, however long their queues.
func (q *queue) since() uint64 { return max(q.served, q.head().came) }

func (q *queue) head() *waiter { return q.list.Front().Value.(*waiter) }

// add adds a request of a user who has so many seats.
func (q *queues) add(w *waiter, seats int) {
	own := q.of[w.user]
	if own == nil {
		own = &queue{user: w.user, seats: seats, list: list.New()}
		if q.of == nil {
			q.of = map[string]*queue{}
		}
		q.of[w.user] = own
	}
	w.at = own.list.PushBack(w)
	if q.waiting++; own.list.Len() == 1 {
		heap.Push(&q.turns, own)
	}
}

// remove takes a request out, wherever it is in its queue.
func (q *queues) remove(w *waiter) {
	own := q.of[w.user]
	wasHead := own.list.Front() == w.at
	own.list.Remove(w.at)
	w.at = nil
	q.waiting--
	switch {
	case own.list.Len() == 0:
		heap.Remove(&q.turns, own.place)
		delete(q.of, w.user)
	case wasHead:
		heap.Fix(&q.turns, own.place)
	}
}

// serve takes a request out that gets a seat.
func (q *queues) serve(w *waiter, now uint64) {
	q.of[w.user].served = now
	q.remove(w)
}

// has is how many seats a user has from now on.
func (q *queues) has(user string, seats int) {
	if own := q.of[user]; own != nil {
		own.seats = seats
		heap.Fix(&q.turns, own.place)
	}
}

// first is the request of the user who has the fewest seats, and of these of the one that waits the longest for a turn;
// nil for none.
func (q *queues) first() *waiter {
	if len(q.turns) == 0 {
		return nil
	}
	return q.turns[0].head()
}

// turns is a heap of queues that have requests.
type turns []*queue

func (t turns) Len() int { return len(t) }

func (t turns) Less(i, j int) bool {
	if t[i].seats != t[j].seats {
		return t[i].seats < t[j].seats
	}
	return t[i].since() < t[j].since()
}

func (t turns) Swap(i, j int) {
	t[i], t[j] = t[j], t[i]
	t[i].place, t[j].place = i, j
}

// Push is for container/heap.
func (t *turns) Push(q any) {
	own := q.(*queue)
	own.place = len(*t)
	*t = append(*t, own)
}

// Pop is for container/heap.
func (t *turns) Pop() any {
	last := (*t)[len(*t)-1]
	(*t)[len(*t)-1] = nil
	*t = (*t)[:len(*t)-1]
	return last
}
