package spec

import (
	"fmt"
	"path"

	"github.com/kubefusion/fusionctl/internal/quantity"
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
	for i, w := range s.Windows {
		at := fmt.Sprintf("spec.windows[%d]", i)
		v.schedule(at, w.Schedule, w.TimeZone)
		if _, err := parseWindowDuration(w.Duration); err != nil {
			v.addf(at+".duration", "%v", err)
		}
	}
	if s.Target != "" {
		v.oneOf("spec.target", string(s.Target), Targets)
	}
	if s.Repair != "" {
		v.oneOf("spec.repair", string(s.Repair), Repairs)
	}
	if s.OnHosts() {
		v.onHosts()
	}
}

// OnHosts reports whether the components of an object run on the hosts.
func (s *Spec) OnHosts() bool { return s.Target == TargetStaticPod || s.Target == TargetSystemd }

// onHosts judges what the operator does in its own cluster alone.
func (v *validator) onHosts() {
	s := &v.file.Spec
	if s.DeletionPolicy == DeletionDelete {
		v.addf("spec.deletionPolicy", "%q: takes pods and volumes of the operator's cluster away; want %q with "+
			"spec.target %s: a control plane on hosts is removed by fusionctl transition", s.DeletionPolicy,
			DeletionKeep, s.Target)
	}
}

func (v *validator) backup(at string, b *Backup) {
	v.schedule(at, b.Schedule, b.TimeZone)
	if b.Keep < 1 || b.Keep > MostBackupsKept {
		v.addf(at+".keep", "%d: want 1 to %d", b.Keep, MostBackupsKept)
	}
	switch hosts := v.file.Spec.OnHosts(); {
	case hosts && b.Image != "":
		v.addf(at+".image", "%q: is of a pod, and spec.target is %s: an agent saves the stores there", b.Image,
			v.file.Spec.Target)
	case hosts && b.Directory == "":
		v.expect(at+".directory", "", "want a directory of the first of spec.hosts, whose agent saves the stores")
	case hosts:
		if v.absolute(at+".directory", b.Directory, true) && (path.Clean(b.Directory) != b.Directory ||
			b.Directory == "/") {
			v.expect(at+".directory", b.Directory, "want a clean path of a directory for backups alone")
		}
	case b.Directory != "":
		v.addf(at+".directory", "%q: is of a host, and spec.target is %s: pods save the stores into the volume of "+
			"claim", b.Directory, TargetHosted)
	case b.Image == "":
		v.expect(at+".image", "", "want an image that has fusionctl in its PATH")
	default:
		v.image(at+".image", b.Image)
	}
	v.label(at+".claim", b.Claim)
	if q, err := quantity.Parse(b.Size); err != nil || q.Sign() <= 0 {
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
