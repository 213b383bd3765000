package etcdv3

import (
	"fmt"
	"sync"
	"time"
)

// slowness notices a store that answers each request in time and yet does not end, as one that sends a key every few
// seconds and each time says that there are more. Pages that say so have to be worth their time.
type slowness struct {
	patience time.Duration // that pages may take beyond what they are worth

	mu   sync.Mutex
	owed time.Duration
}

const (
	leastKeysPerSecond  = 20
	leastBytesPerSecond = 16 << 10
	// patientTimeouts is the patience, in timeouts of a request: five minutes by default.
	patientTimeouts = 30
)

// page counts a page behind which there are more.
// Errors: *RefusedError, when the pages so far were too slow.
func (s *slowness) page(took time.Duration, keys, bytes int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	worth := time.Duration(keys)*time.Second/leastKeysPerSecond + time.Duration(bytes)*time.Second/leastBytesPerSecond
	s.owed = max(0, s.owed+took-worth)
	if s.owed <= s.patience {
		return nil
	}
	return &RefusedError{Reason: fmt.Sprintf("the store answers too slowly to come to an end: %d keys took %s, and "+
		"for %s it has sent less than %d keys and %d KiB in a second", keys, took.Round(time.Millisecond),
		s.patience, leastKeysPerSecond, leastBytesPerSecond>>10)}
}
