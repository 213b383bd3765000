package etcd

// Change is one write to a key, or its deletion.
type Change struct {
	Entry
	Deleted bool
}
