package operator

import (
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/kubefusion/fusionctl/pkg/operator/api"
)

// What the operator knows of backups, for alerts.
var (
	backupTime = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "fusionctl_operator_backup_timestamp_seconds",
		Help: "When the last verified backup of a control plane was made.",
	}, []string{"control_plane"})
	backupGood = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "fusionctl_operator_backed_up",
		Help: "1 when the last backup of a control plane is verified and not too old, 0 otherwise.",
	}, []string{"control_plane"})
)

func init() { ctrlmetrics.Registry.MustRegister(backupTime, backupGood) }

// noteBackup sets the metrics to what the status says.
func noteBackup(f *api.FusedControlPlane) {
	if b := f.Status.Backup; b != nil && b.Last != nil {
		backupTime.WithLabelValues(f.Name).Set(float64(b.Last.At.Unix()))
	}
	good := 0.0
	if meta.IsStatusConditionTrue(f.Status.Conditions, api.ConditionBackedUp) {
		good = 1
	}
	backupGood.WithLabelValues(f.Name).Set(good)
}

// forgetBackup removes the metrics of a control plane that has no backups.
func forgetBackup(name string) {
	backupTime.DeleteLabelValues(name)
	backupGood.DeleteLabelValues(name)
}
