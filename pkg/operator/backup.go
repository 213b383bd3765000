package operator

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubefusion/fusionctl/pkg/etcd/backup"
	"github.com/kubefusion/fusionctl/pkg/operator/api"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/spec"
)

// BackupName is the CronJob beside a control plane that saves its stores, and what it reads: a ConfigMap, and the
// Secret of that name with -files.
const BackupName = "fusionctl-backup"

// Where the pods of backups and restores have what they read and write.
const (
	backupFiles   = "/etc/fusionctl/files"
	backupConfig  = "/etc/fusionctl/backup"
	backupVolume  = "/var/lib/fusionctl-backup"
	sourceKey     = "source.json"
	configSum     = "kubefusion.dev/config"
	terminationAt = "/dev/termination-log"
)

// backupDirectory is where the backups of a control plane are in the volume.
func backupDirectory(name string) string { return path.Join(backupVolume, name) }

// grace is how long after its time a backup may be made.
const grace = 10 * time.Minute

// backups applies what saves the stores that run, and says in the status what was saved. It returns after which time it
// has to be looked at again.
func (p *plane) backups(ctx context.Context) (time.Duration, error) {
	s := &p.object.Status
	file := p.verdict.file
	if file == nil || p.record.Plan == nil || p.record.Open != nil {
		return p.Repair, nil
	}
	b := file.Spec.Backup
	if b == nil {
		had := s.Backup != nil
		s.Backup = nil
		meta.RemoveStatusCondition(&s.Conditions, api.ConditionBackedUp)
		forgetBackup(p.object.Name)
		if had && !file.Spec.Paused && onHosts(p.record.target()) {
			return p.Repair, p.stopSaver(ctx)
		}
		if had && !file.Spec.Paused {
			return p.Repair, p.removeBackup(ctx)
		}
		return p.Repair, nil
	}
	schedule, err := spec.ParseSchedule(b.Schedule, b.TimeZone)
	if err != nil {
		return 0, fmt.Errorf("spec.backup.schedule: %w", err)
	}
	if onHosts(p.record.target()) {
		return p.backupsOnHosts(ctx, b, schedule)
	}
	since := p.Now()
	if !file.Spec.Paused {
		if since, err = p.applyBackup(ctx, b, false); err != nil {
			p.notBackedUp("NotApplied", err.Error())
			return 0, err
		}
	}
	if s.Backup == nil {
		s.Backup = &api.BackupStatus{}
	}
	waits, err := p.seeBackups(ctx, s.Backup)
	if err != nil {
		p.notBackedUp("Unreadable", err.Error())
		return 0, err
	}
	return p.judgeBackups(schedule, since, waits), nil
}

// judgeBackups says whether the last backup is good and new enough. since is when the first one could be made, waits
// why a pod has not begun.
func (p *plane) judgeBackups(schedule *spec.Schedule, since time.Time, waits string) time.Duration {
	s, now := p.object.Status.Backup, p.Now()
	if s.Last != nil {
		since = s.Last.At.Time
	}
	due := schedule.Next(since)
	second := schedule.Next(due)
	next := metav1.NewTime(schedule.Next(now).UTC())
	s.Next = &next
	var why string
	if s.Failed != nil {
		why = "; the last attempt failed: " + s.Failed.Error
	}
	if waits != "" {
		why += "; a pod waits: " + waits
	}
	last := "there is no backup yet"
	if s.Last != nil {
		last = fmt.Sprintf("backup %s is the last one", s.Last.Name)
	}
	switch {
	case !second.IsZero() && now.After(second.Add(grace)):
		p.notBackedUp("TooOld", fmt.Sprintf("%s, and there should be one of %s%s", last,
			second.UTC().Format(time.RFC3339), why))
	case s.Failed != nil:
		p.notBackedUp("Failed", last+why)
	case s.Last == nil:
		p.condition(api.ConditionBackedUp, metav1.ConditionFalse, reasonNotYet, last+why)
	default:
		p.condition(api.ConditionBackedUp, metav1.ConditionTrue, "Verified", last+
			", and was read to its end")
	}
	noteBackup(p.object)
	if due.IsZero() || !now.After(due) {
		return min(p.Repair, next.Sub(now)+time.Minute)
	}
	return min(p.Repair, time.Minute) // one is being made, or should be
}

func (p *plane) notBackedUp(reason, message string) {
	was := meta.FindStatusCondition(p.object.Status.Conditions, api.ConditionBackedUp)
	if was == nil || was.Status != metav1.ConditionFalse || was.Reason != reason {
		p.event(corev1.EventTypeWarning, "NotBackedUp", "%s: %s", reason, message)
	}
	p.condition(api.ConditionBackedUp, metav1.ConditionFalse, reason, message)
	noteBackup(p.object)
}

// seeBackups reads from the pods that ended what was saved, and why it was not. What the status knows already stays:
// pods are deleted. waits is why a pod has not begun.
func (p *plane) seeBackups(ctx context.Context, s *api.BackupStatus) (waits string, err error) {
	list := &corev1.PodList{}
	if err := p.Reader.List(ctx, list, client.InNamespace(p.object.Name),
		client.MatchingLabels{nameLabel: BackupName, partOfLabel: p.object.Name}); err != nil {
		return "", fmt.Errorf("listing the pods of backups: %w", err)
	}
	slices.SortFunc(list.Items, func(a, b corev1.Pod) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
	})
	if s.Last != nil && p.toCome(s.Last.At.Time) {
		s.Last = nil
	}
	for i := range list.Items {
		ended, why := endOf(&list.Items[i])
		if waits = why; ended == nil {
			continue
		}
		result, failed := resultOf(ended)
		if failed == "" {
			failed = p.ahead(result.Name, result.At)
		}
		at := ended.FinishedAt
		if p.toCome(at.Time) { // the clock of the management cluster says less, and does not go wrong with that
			at = list.Items[i].CreationTimestamp
		}
		if failed == "" {
			last := &api.BackupMade{Name: result.Name, At: metav1.NewTime(result.At)}
			for _, store := range result.Stores {
				last.Stores = append(last.Stores, api.StoreSaved{Name: brief(store.Name), Revision: store.Revision,
					Keys: store.Keys, Bytes: store.Bytes})
			}
			last.Findings = result.Findings
			if s.Last == nil || !last.At.Before(&s.Last.At) {
				s.Last, s.Kept = last, result.Kept
			}
		} else if s.Failed == nil || at.After(s.Failed.At.Time) {
			s.Failed = &api.BackupFailed{At: at, Error: brief(failed)}
		}
	}
	if s.Failed != nil && s.Last != nil && s.Failed.At.Before(&s.Last.At) {
		s.Failed = nil
	}
	return waits, nil
}

// toCome reports a time that a clock has said which was ahead. A backup of such a time would count as the last one
// until then, and none that is missing would be missed.
func (p *plane) toCome(at time.Time) bool { return at.After(p.Now().Add(grace)) }

// ahead says that a backup is of a time to come; "" when it is not.
func (p *plane) ahead(name string, at time.Time) string {
	if !p.toCome(at) {
		return ""
	}
	return fmt.Sprintf("backup %s is of %s, which is to come: the clock where it was made was ahead, or that of "+
		"the operator is behind", name, at.UTC().Format(time.RFC3339))
}

// endOf is how the container of a pod ended, nil while it has not; then, why it has not begun, "" where it has.
func endOf(pod *corev1.Pod) (ended *corev1.ContainerStateTerminated, waits string) {
	for _, c := range pod.Status.ContainerStatuses {
		if c.State.Terminated != nil {
			return c.State.Terminated, ""
		}
		if w := c.State.Waiting; w != nil {
			waits = strings.TrimSpace(w.Reason + " " + w.Message)
		}
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			waits = c.Message
		}
	}
	return nil, waits
}

// resultOf is what a pod told by its end: its image may say what it likes, or nothing.
func resultOf(ended *corev1.ContainerStateTerminated) (*backup.Result, string) {
	r := &backup.Result{}
	err := json.Unmarshal([]byte(ended.Message), r)
	switch {
	case err == nil && r.Error != "":
		return nil, r.Error
	case ended.ExitCode != 0:
		return nil, fmt.Sprintf("the pod ended with %d, %s", ended.ExitCode, ended.Reason)
	case err != nil || r.Schema != backup.Schema || r.Backup == nil || !backup.IsName(r.Name) || r.At.IsZero():
		return nil, "the pod says nothing that can be read: its image is to be of this version of fusionctl"
	}
	r.Kept = slices.DeleteFunc(r.Kept, func(name string) bool { return !backup.IsName(name) })
	r.Kept = r.Kept[:min(len(r.Kept), spec.MostBackupsKept)]
	return r, ""
}

// removeBackup removes what saves the stores. The volume and what is in it stay.
func (p *plane) removeBackup(ctx context.Context) error {
	for _, of := range []struct{ apiVersion, kind, name string }{{"batch/v1", "CronJob", BackupName},
		{"v1", "ConfigMap", BackupName}} {
		there := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: of.apiVersion, Kind: of.kind}}
		err := p.Reader.Get(ctx, types.NamespacedName{Namespace: p.object.Name, Name: of.name}, there)
		if err == nil && ours(there, p.object.Name) {
			uid := there.UID
			err = p.Client.Delete(ctx, there, client.PropagationPolicy(metav1.DeletePropagationBackground),
				client.Preconditions{UID: &uid})
		}
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("removing %s %s: %w", of.kind, of.name, err)
		}
	}
	return nil
}

// applyBackup applies what saves the stores of the plan that runs, where it is not as it was applied, or when
// everything is. It returns when the CronJob was made.
func (p *plane) applyBackup(ctx context.Context, b *spec.Backup, suspend bool) (since time.Time, err error) {
	name := p.object.Name
	objects, sum, err := backupObjects(p.record.Plan, b, suspend)
	if err != nil {
		return since, err
	}
	there := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "batch/v1", Kind: "CronJob"}}
	err = p.Reader.Get(ctx, types.NamespacedName{Namespace: name, Name: BackupName}, there)
	if err != nil && !apierrors.IsNotFound(err) {
		return since, fmt.Errorf("reading CronJob %s: %w", BackupName, err)
	}
	since = p.Now()
	if err == nil {
		if made := there.CreationTimestamp; !made.IsZero() {
			since = made.Time
		}
		if ours(there, name) && there.Annotations[configSum] == sum && !p.repairs {
			return since, nil
		}
	}
	if err := p.inOwn(ctx); err != nil {
		return since, err
	}
	if err := p.claim(ctx, b); err != nil {
		return since, err
	}
	files, err := p.backupSecret(ctx)
	if err != nil {
		return since, err
	}
	for _, object := range append([]*unstructured.Unstructured{files}, objects...) {
		if mark(object, name); object.GetKind() == there.Kind && ours(there, name) { // as it was read
			err = p.write(ctx, object)
		} else {
			err = p.apply(ctx, object, name)
		}
		if err != nil {
			return since, err
		}
	}
	return since, nil
}

// claim makes the volume, where there is none of that name. One that is there is taken, by its name.
func (p *plane) claim(ctx context.Context, b *spec.Backup) error {
	err := p.Reader.Get(ctx, types.NamespacedName{Namespace: p.object.Name, Name: b.Claim},
		partial("PersistentVolumeClaim"))
	if err == nil {
		return nil
	}
	if !apierrors.IsNotFound(err) {
		return fmt.Errorf("reading PersistentVolumeClaim %s: %w", b.Claim, err)
	}
	claim := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "PersistentVolumeClaim",
		"metadata": map[string]any{"namespace": p.object.Name, "name": b.Claim},
		"spec": map[string]any{"accessModes": []any{"ReadWriteOnce"},
			"resources": map[string]any{"requests": map[string]any{"storage": b.Size}}}}}
	return p.apply(ctx, claim, p.object.Name)
}

// backupSecret are the files with which the stores are read, and no others.
func (p *plane) backupSecret(ctx context.Context) (*unstructured.Unstructured, error) {
	files, err := p.certificates(ctx, p.record.Plan, true)
	if err != nil {
		return nil, err
	}
	data := map[string]any{}
	for _, s := range p.record.Plan.Stores {
		if s.TLS == nil {
			continue
		}
		for _, of := range s.TLS.Files() {
			content, ok := files[pkiKey(of)]
			if !ok {
				return nil, fmt.Errorf("the backup reads %s, which nothing provides: put it into Secret %s/%s as %s",
					of, p.object.Name, PKIName, pkiKey(of))
			}
			data[pkiKey(of)] = base64.StdEncoding.EncodeToString(content)
		}
	}
	return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Secret",
		"metadata": map[string]any{"namespace": p.object.Name, "name": BackupName + "-files",
			"labels": map[string]any{nameLabel: BackupName}},
		"data": data}}, nil
}

// backupObjects are the ConfigMap and the CronJob, and a sum of both.
func backupObjects(of *plan.Plan, b *spec.Backup, suspend bool) ([]*unstructured.Unstructured, string, error) {
	source := backup.SourceOf(of)
	source.Stores = slices.Clone(source.Stores)
	for i := range source.Stores {
		if t := source.Stores[i].TLS; t != nil {
			there := *t
			for _, file := range []*string{&there.CA, &there.Cert, &there.Key} {
				if *file != "" {
					*file = path.Join(backupFiles, pkiKey(*file))
				}
			}
			source.Stores[i].TLS = &there
		}
	}
	text, err := json.Marshal(source)
	if err != nil {
		return nil, "", err
	}
	container := fusionctlContainer("backup", b.Image, "etcd", "backup", "--source="+path.Join(backupConfig, sourceKey),
		"--out="+backupDirectory(of.Name), fmt.Sprintf("--keep=%d", b.Keep), "--result="+terminationAt)
	container["volumeMounts"] = []any{
		map[string]any{"name": "config", "mountPath": backupConfig, "readOnly": true},
		map[string]any{"name": "files", "mountPath": backupFiles, "readOnly": true},
		map[string]any{"name": "backups", "mountPath": backupVolume},
	}
	pod := fusionctlPod(container, map[string]any{"name": "config", "configMap": map[string]any{"name": BackupName}},
		map[string]any{"name": "files", "secret": map[string]any{"secretName": BackupName + "-files",
			"defaultMode": int64(0o440)}},
		claimed("backups", b.Claim))
	labels := map[string]any{nameLabel: BackupName, partOfLabel: of.Name, managedByLabel: managedBy}
	zone := b.TimeZone
	if zone == "" {
		zone = "Etc/UTC"
	}
	job := map[string]any{
		"schedule": b.Schedule, "timeZone": zone, "concurrencyPolicy": string(batchv1.ForbidConcurrent),
		"suspend": suspend, "startingDeadlineSeconds": int64(3600),
		"successfulJobsHistoryLimit": int64(2), "failedJobsHistoryLimit": int64(2),
		"jobTemplate": map[string]any{"metadata": map[string]any{"labels": labels}, "spec": map[string]any{
			"backoffLimit": int64(2), "activeDeadlineSeconds": int64(6 * 3600),
			"template": map[string]any{"metadata": map[string]any{"labels": labels}, "spec": pod}}},
	}
	config := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{"namespace": of.Name, "name": BackupName,
			"labels": map[string]any{nameLabel: BackupName}},
		"data": map[string]any{sourceKey: string(text)}}}
	data, err := json.Marshal([]any{config.Object, job})
	if err != nil {
		return nil, "", err
	}
	hash := sha256.Sum256(data)
	sum := hex.EncodeToString(hash[:])
	cron := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "batch/v1", "kind": "CronJob",
		"metadata": map[string]any{"namespace": of.Name, "name": BackupName,
			"labels": maps.Clone(labels), "annotations": map[string]any{configSum: sum}},
		"spec": job}}
	return []*unstructured.Unstructured{config, cron}, sum, nil
}

func claimed(volume, claim string) map[string]any {
	return map[string]any{"name": volume, "persistentVolumeClaim": map[string]any{"claimName": claim}}
}

// fusionctlContainer runs a verb of fusionctl, with no rights. Its arguments are what they are: a kubelet fills in
// $(NAME), of variables that every pod has, and takes $$ for a single one.
func fusionctlContainer(name, image string, args ...string) map[string]any {
	words := make([]any, len(args))
	for i, arg := range args {
		words[i] = strings.ReplaceAll(arg, "$", "$$")
	}
	return map[string]any{"name": name, "image": image, "imagePullPolicy": "IfNotPresent",
		"command": []any{"fusionctl"}, "args": words,
		"resources": map[string]any{"requests": map[string]any{"cpu": "100m", "memory": "128Mi"}},
		"securityContext": map[string]any{"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
			"capabilities": map[string]any{"drop": []any{"ALL"}}}}
}

// podUser is as whom the members of stores run, and what reads and writes their volumes.
const podUser = int64(65534)

// fusionctlPod is a pod that ends, without an account of the cluster. Whom the files of its volumes belong to is set
// once: set at each start, others could write there.
func fusionctlPod(container map[string]any, volumes ...any) map[string]any {
	return map[string]any{"restartPolicy": "Never", "automountServiceAccountToken": false, "enableServiceLinks": false,
		"securityContext": map[string]any{"runAsNonRoot": true, "runAsUser": podUser, "runAsGroup": podUser,
			"fsGroup": podUser, "fsGroupChangePolicy": string(corev1.FSGroupChangeOnRootMismatch),
			"seccompProfile": map[string]any{"type": string(corev1.SeccompProfileTypeRuntimeDefault)}},
		"containers": []any{container}, "volumes": volumes}
}

var errNoBackup = errors.New("spec.backup is not set: it says where the backups are")
