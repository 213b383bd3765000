package policy

import (
	"maps"
	"slices"
	"strings"
)

// prefixTree finds which of many prefixes a path begins with, in time that depends on the path and not on their number.
// It is a radix tree: an edge holds the bytes that all prefixes below it share.
type prefixTree struct {
	nodes []prefixNode // the root is the first; empty for a tree without prefixes
}

type prefixNode struct {
	label    string // the bytes on the edge that leads here
	id       uint32 // of the prefix that ends here, 0 for none
	children []int32
	firsts   string // the first byte of each child's label
}

func newPrefixTree(ids wordIDs) prefixTree {
	var tree prefixTree
	if len(ids) > 0 {
		tree.build(slices.Sorted(maps.Keys(ids)), 0, 0, ids)
	}
	return tree
}

// build adds the node for the sorted words, which all share the first end bytes; its label begins at byte start. It
// returns the node's place.
func (t *prefixTree) build(words []string, start, end int, ids wordIDs) int32 {
	at := int32(len(t.nodes))
	node := prefixNode{label: words[0][start:end]}
	t.nodes = append(t.nodes, node)
	if len(words[0]) == end {
		node.id = ids[words[0]]
		words = words[1:]
	}
	var firsts []byte
	for len(words) > 0 {
		first := words[0][end]
		n, _ := slices.BinarySearchFunc(words, first, func(word string, first byte) int {
			if word[end] <= first {
				return -1
			}
			return 1
		})
		firsts = append(firsts, first)
		node.children = append(node.children, t.build(words[:n], end, commonLength(words[0], words[n-1]), ids))
		words = words[n:]
	}
	node.firsts = string(firsts)
	t.nodes[at] = node
	return at
}

func commonLength(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// walk starts to visit the prefixes of the path, shortest first.
func (t *prefixTree) walk(path string) prefixWalk {
	return prefixWalk{nodes: t.nodes, rest: path, at: -1}
}

// prefixWalk is a walk down the tree. It is a value, so that walking allocates nothing.
type prefixWalk struct {
	nodes []prefixNode
	rest  string // the path behind the label of the current node
	at    int32  // the current node, -1 above the root
	id    uint32 // of the prefix that next found
}

// next moves to the next prefix and reports whether there is one.
func (w *prefixWalk) next() bool {
	for w.down() {
		if w.id = w.nodes[w.at].id; w.id != 0 {
			return true
		}
	}
	return false
}

// down moves one node down the path.
func (w *prefixWalk) down() bool {
	if w.at < 0 { // the label of the root is empty
		w.at = 0
		return len(w.nodes) > 0
	}
	if w.rest == "" {
		return false
	}
	node := &w.nodes[w.at]
	child := strings.IndexByte(node.firsts, w.rest[0])
	if child < 0 {
		return false
	}
	at := node.children[child]
	label := w.nodes[at].label
	if !strings.HasPrefix(w.rest, label) {
		return false
	}
	w.at, w.rest = at, w.rest[len(label):]
	return true
}
