package backup

// record is what lies beside the snapshots of a backup.
type record struct {
	*Backup
	// SHA256 is that of each snapshot, by the name of its file. The hash that a snapshot ends with is made anew by who
	// changes it, and by etcdctl, for one that was cut off.
	SHA256 map[string]string `json:"sha256"`
}
