package operator

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubefusion/fusionctl/internal/prose"
	"github.com/kubefusion/fusionctl/pkg/etcd/backup"
	"github.com/kubefusion/fusionctl/pkg/operator/api"
	"github.com/kubefusion/fusionctl/pkg/spec"
	"github.com/kubefusion/fusionctl/pkg/transition"
)

// The labels of the pods that put a member back.
const (
	memberLabel  = "kubefusion.dev/member"
	restoreLabel = "kubefusion.dev/restore"
)

// restores is the backup to which a person wants the stores to be put back; "" for none, or when that was done.
func (p *plane) restores() string {
	if wanted := p.object.Annotations[api.AnnotationRestore]; wanted != p.record.Restored {
		return wanted
	}
	return ""
}

// beginRestore begins the transition to a backup. The annotation names it, and is the approval: what was written since
// is not in the stores after it.
func (p *plane) beginRestore(ctx context.Context, name string) (time.Duration, error) {
	v := &p.verdict
	var kept []string
	if p.object.Status.Backup != nil {
		kept = p.object.Status.Backup.Kept
	}
	var why string
	switch {
	case v.file.Spec.Backup == nil:
		why = errNoBackup.Error()
	case !slices.Contains(kept, name):
		why = fmt.Sprintf("%s=%q: there is no such backup; there are: %s", api.AnnotationRestore, brief(name),
			prose.First(append(kept, "no other"), mostNamed))
	case p.backed() == v.digest:
		why = "the annotation " + api.AnnotationBack + " names this plan, and would undo the restore: remove it"
	}
	if why != "" {
		p.refuse("NotRestored", why)
		return p.steady(ctx)
	}
	t, err := p.restore(name)
	if refused, ok := errors.AsType[*transition.RefusedError](err); ok {
		p.refuse("NotRestored", strings.Join(refused.Reasons, "; "))
		return p.steady(ctx)
	}
	if err != nil {
		p.degraded("NotRestored", err)
		return 0, err
	}
	if is, err := p.current(ctx); err != nil || !is {
		return p.Look, err
	}
	// No backup is made meanwhile, and none goes.
	if onHosts(v.target) {
		hosts, err := p.hosts(ctx, p.object.Name, machines(p.record.Plan))
		if err != nil {
			p.degraded("Hosts", err)
			return 0, err
		}
		if !p.agents(hosts) {
			return p.Look * 5, nil
		}
		if err := p.relieve(ctx, hosts); err != nil {
			return 0, err
		}
	} else if _, err := p.applyBackup(ctx, v.file.Spec.Backup, true); err != nil {
		p.degraded("NotRestored", err)
		return 0, err
	}
	p.record.Restored = name
	return p.open(ctx, t, v.digest, p.record.Plan, p.record.target())
}

// restore is the transition to a backup, of pods or of hosts.
func (p *plane) restore(name string) (transition.Transition, error) {
	id := transition.RestoreID(p.Now())
	if target := p.record.target(); onHosts(target) {
		return transition.NewRestoreOnHosts(transition.Setup{Plan: p.record.Plan, Target: target},
			p.verdict.file.Spec.Backup.Directory, name, id)
	}
	return transition.NewRestore(p.record.Plan, name, id)
}

// member does what puts a member of a store back: a Job that has the volume of the member, and that of the backups.
func (r *runner) member(ctx context.Context, m *transition.Member, back bool) error {
	if r.backup == nil {
		return errNoBackup
	}
	name := jobName(m, back)
	// One that was begun in the other direction does not go on beside it.
	if busy, err := r.memberBusy(ctx, m, name); err != nil || busy != "" {
		if err == nil {
			err = r.endJob(ctx, m.Namespace, jobName(m, !back))
		}
		return errors.Join(err, fmt.Errorf("pod %s has not ended: %w", busy, errWaiting))
	}
	job, err := r.job(ctx, m, back)
	switch {
	case err != nil:
		return err
	case job == nil:
		return r.apply(ctx, memberJob(m, r.backup, back), m.Namespace)
	}
	for _, c := range job.Status.Conditions {
		if c.Type == batchv1.JobFailed && c.Status == corev1.ConditionTrue {
			failed := fmt.Errorf("job %s failed: %s; %s", name, c.Message, r.whyFailed(ctx, m))
			if back { // there is no other way than to try it again
				failed = errors.Join(failed, r.endJob(ctx, m.Namespace, name))
			}
			return failed
		}
	}
	return nil
}

// memberIs waits for the Job of a member.
func (r *runner) memberIs(ctx context.Context, c *transition.Check) error {
	job, err := r.job(ctx, c.Member, c.Back)
	switch {
	case err != nil:
		return err
	case job != nil && job.Status.Succeeded > 0:
		return nil
	}
	return fmt.Errorf("job %s has not ended: %w; %s", jobName(c.Member, c.Back), errWaiting, c.Hint)
}

// job reads the Job of a member, nil for none.
func (r *runner) job(ctx context.Context, m *transition.Member, back bool) (*batchv1.Job, error) {
	job := &batchv1.Job{}
	err := r.Reader.Get(ctx, types.NamespacedName{Namespace: m.Namespace, Name: jobName(m, back)}, job)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading job %s: %w", jobName(m, back), err)
	case !ours(job, m.Namespace):
		return nil, foreign(job, m.Namespace)
	case job.DeletionTimestamp != nil:
		return nil, fmt.Errorf("job %s is being deleted: %w", job.Name, errWaiting)
	}
	return job, nil
}

func (r *runner) endJob(ctx context.Context, namespace, name string) error {
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	err := r.Client.Delete(ctx, job, client.PropagationPolicy(metav1.DeletePropagationBackground))
	return client.IgnoreNotFound(err)
}

// memberBusy names a pod of another job that works, or may begin to, on the volume of a member.
func (r *runner) memberBusy(ctx context.Context, m *transition.Member, job string) (string, error) {
	pods, err := r.memberPods(ctx, m)
	for _, pod := range pods {
		ended := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
		if !ended && pod.Labels[restoreLabel] != job {
			return pod.Name, nil
		}
	}
	return "", err
}

func (r *runner) memberPods(ctx context.Context, m *transition.Member) ([]corev1.Pod, error) {
	list := &corev1.PodList{}
	if err := r.Reader.List(ctx, list, client.InNamespace(m.Namespace), client.MatchingLabels{
		nameLabel: transition.RestoreJob, partOfLabel: m.Namespace, memberLabel: m.Pod}); err != nil {
		return nil, fmt.Errorf("listing the pods that restore %s: %w", m.Pod, err)
	}
	return list.Items, nil
}

// whyFailed is what the last pod of a member said at its end.
func (r *runner) whyFailed(ctx context.Context, m *transition.Member) string {
	pods, err := r.memberPods(ctx, m)
	if err != nil {
		return err.Error()
	}
	for _, pod := range slices.Backward(pods) {
		if ended, _ := endOf(&pod); ended != nil && ended.ExitCode != 0 {
			return brief(strings.TrimSpace(ended.Message))
		}
	}
	return "no pod says why"
}

// jobName names what puts a member back in one direction: another restore has another one.
func jobName(m *transition.Member, back bool) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %s %s %t", m.Pod, m.ID, m.Backup, back))
	return transition.RestoreJob + "-" + hex.EncodeToString(sum[:digestBytes])
}

const memberFiles = "data"

func memberJob(m *transition.Member, b *spec.Backup, back bool) *unstructured.Unstructured {
	args := []string{"etcd", "restore", "--data-dir=" + m.DataDir, "--id=" + m.ID}
	if back {
		args = append(args, "--back")
	} else {
		args = append(args, "--name="+m.Pod, "--peer-url="+m.PeerURL, "--cluster="+m.Cluster, "--token="+m.Token,
			path.Join(backupDirectory(m.Namespace), m.Backup, m.Store+".db"))
	}
	container := fusionctlContainer("restore", b.Image, args...)
	container["terminationMessagePolicy"] = string(corev1.TerminationMessageFallbackToLogsOnError)
	container["volumeMounts"] = []any{
		map[string]any{"name": memberFiles, "mountPath": m.DataDir},
		map[string]any{"name": "backups", "mountPath": backupVolume, "readOnly": true},
	}
	name := jobName(m, back)
	labels := map[string]any{nameLabel: transition.RestoreJob, partOfLabel: m.Namespace, managedByLabel: managedBy,
		memberLabel: m.Pod, restoreLabel: name}
	return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "batch/v1", "kind": "Job",
		"metadata": map[string]any{"namespace": m.Namespace, "name": name, "labels": labels},
		"spec": map[string]any{"backoffLimit": int64(2), "ttlSecondsAfterFinished": int64(24 * 3600),
			"template": map[string]any{"metadata": map[string]any{"labels": labels},
				"spec": fusionctlPod(container, claimed(memberFiles, m.Claim), claimed("backups", b.Claim))}}}}
}

// validateMember refuses a member of another control plane, and one of no store of the plan.
func validateMember(m *transition.Member, name string) error {
	if err := m.Validate(); err != nil {
		return err
	}
	if m.Namespace != name {
		return fmt.Errorf("member %s of namespace %q: %w", m.Pod, m.Namespace, errBeyond)
	}
	if !backup.IsName(m.Backup) {
		return fmt.Errorf("backup %q: %w", m.Backup, errBeyond)
	}
	return nil
}
