package operator

import (
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
		Help: "1 when the last backup of a control plane is verified and not too old, 0 otherwise; none before " +
			"the first.",
	}, []string{"control_plane"})
)

// reasonNotYet is the reason of condition BackedUp before the first backup is due.
const reasonNotYet = "NotYet"

func init() { Describe(ctrlmetrics.Registry) }

// Describe registers the metrics of the operator beside those of its library, as a process does that serves them.
func Describe(r prometheus.Registerer) { r.MustRegister(backupTime, backupGood) }

// noteBackup sets the metrics to what the status says.
func noteBackup(f *api.FusedControlPlane) {
	if b := f.Status.Backup; b != nil && b.Last != nil {
		backupTime.WithLabelValues(f.Name).Set(float64(b.Last.At.Unix()))
	}
	condition := meta.FindStatusCondition(f.Status.Conditions, api.ConditionBackedUp)
	if condition == nil || condition.Reason == reasonNotYet {
		backupGood.DeleteLabelValues(f.Name)
		return
	}
	good := 0.0
	if condition.Status == metav1.ConditionTrue {
		good = 1
	}
	backupGood.WithLabelValues(f.Name).Set(good)
}

// forgetBackup removes the metrics of a control plane that has no backups.
func forgetBackup(name string) {
	backupTime.DeleteLabelValues(name)
	backupGood.DeleteLabelValues(name)
}
