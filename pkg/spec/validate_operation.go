package spec

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/resource"
)

// operation judges what the operator heeds.
func (v *validator) operation() {
	s := &v.file.Spec
	if s.DeletionPolicy != "" {
		v.oneOf("spec.deletionPolicy", string(s.DeletionPolicy), DeletionPolicies)
	}
	if s.Approval != "" {
		v.oneOf("spec.approval", string(s.Approval), Approvals)
	}
	if s.Backup != nil {
		v.backup("spec.backup", s.Backup)
	}
}

func (v *validator) backup(at string, b *Backup) {
	v.schedule(at, b.Schedule, b.TimeZone)
	if b.Keep < 1 || b.Keep > MostBackupsKept {
		v.addf(at+".keep", "%d: want 1 to %d", b.Keep, MostBackupsKept)
	}
	if b.Image == "" {
		v.expect(at+".image", "", "want an image that has fusionctl in its PATH")
	}
	v.image(at+".image", b.Image)
	v.label(at+".claim", b.Claim)
	if q, err := resource.ParseQuantity(b.Size); err != nil || q.Sign() <= 0 {
		v.expect(at+".size", b.Size, fmt.Sprintf("want a size, such as %s", defaultBackupSize))
	}
}

// schedule judges the fields schedule and timeZone.
func (v *validator) schedule(at, schedule, zone string) {
	if schedule == "" {
		v.expect(at+".schedule", "", "want five fields of cron, such as \"30 2 * * *\"")
		return
	}
	if _, err := ParseZone(zone); err != nil {
		v.addf(at+".timeZone", "%v", err)
		return
	}
	if _, err := ParseSchedule(schedule, zone); err != nil {
		v.addf(at+".schedule", "%q: %v", schedule, err)
	}
}
