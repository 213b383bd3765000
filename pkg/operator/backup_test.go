package operator

import (
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kubefusion/fusionctl/pkg/etcd/backup"
	"github.com/kubefusion/fusionctl/pkg/operator/api"
	"github.com/kubefusion/fusionctl/pkg/transition"
)

// saved is a control plane that is saved each night at half past two of Berlin.
type saved struct {
	*fleet
	t    *testing.T
	pods int
}

func newSaved(t *testing.T) *saved {
	t.Helper()
	s := &saved{fleet: newFleet(t, 1), t: t}
	s.edit(func(spec map[string]any) {
		spec["backup"] = map[string]any{"schedule": "30 2 * * *", "timeZone": "Europe/Berlin", "keep": 3,
			"image": "registry.example.com/fusionctl:v1"}
	})
	return s
}

func (s *saved) at(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: s.names[0], Name: name}
}

func (s *saved) object() *api.FusedControlPlane {
	s.t.Helper()
	f := &api.FusedControlPlane{}
	if err := s.Client.Get(s.t.Context(), types.NamespacedName{Name: s.names[0]}, f); err != nil {
		s.t.Fatal(err)
	}
	return f
}

func (s *saved) edit(change func(spec map[string]any)) {
	s.t.Helper()
	f := s.object()
	spec := map[string]any{}
	err := json.Unmarshal(f.Spec, &spec)
	if err == nil {
		change(spec)
		f.Spec, err = json.Marshal(spec)
	}
	if err == nil {
		err = s.Client.Update(s.t.Context(), f)
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *saved) annotate(name, value string) {
	s.t.Helper()
	f := s.object()
	if f.Annotations == nil {
		f.Annotations = map[string]string{}
	}
	f.Annotations[name] = value
	if err := s.Client.Update(s.t.Context(), f); err != nil {
		s.t.Fatal(err)
	}
}

// looked reconciles, and returns the status; after is when it is looked at again.
func (s *saved) looked() (status *api.Status, after time.Duration) {
	s.t.Helper()
	result, err := s.Reconcile(s.t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: s.names[0]}})
	if err != nil {
		s.t.Fatal(err)
	}
	return &s.object().Status, result.RequeueAfter
}

// backedUp is the reason of the condition, with ! before it where it is false.
func (s *saved) backedUp() string {
	s.t.Helper()
	status, _ := s.looked()
	c := meta.FindStatusCondition(status.Conditions, api.ConditionBackedUp)
	switch {
	case c == nil:
		return ""
	case c.Status == metav1.ConditionTrue:
		return c.Reason
	}
	return "!" + c.Reason
}

// ends has a pod of the CronJob end now, with a message.
func (s *saved) ends(code int32, message string) {
	s.t.Helper()
	s.pods++
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.names[0], Name: fmt.Sprintf("backup-%d", s.pods),
		CreationTimestamp: metav1.NewTime(s.now), Labels: map[string]string{nameLabel: BackupName}},
		Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{State: corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Reason: "Error", Message: message,
				FinishedAt: metav1.NewTime(s.now)}}}}}}
	mark(pod, s.names[0])
	if err := s.Client.Create(s.t.Context(), pod); err != nil {
		s.t.Fatal(err)
	}
}

// saves has a pod make a backup now.
func (s *saved) saves() (name string) {
	s.t.Helper()
	name = s.now.UTC().Format("20060102T150405Z")
	text, err := json.Marshal(backup.NewResult(&backup.Backup{Name: name, At: s.now.UTC(),
		Stores: []backup.Store{{Name: "core", Revision: 7, Keys: 5, Bytes: 20000}}}, []string{name, "20250101T000000Z"},
		nil))
	if err != nil {
		s.t.Fatal(err)
	}
	s.ends(0, string(text))
	return name
}

// TestBackupsAreMadeBesideTheStores: what saves them has the files of the stores and of nothing else, and no account;
// what the pods say is in the status, and a backup that is missing, too old or failed in a condition.
func TestBackupsAreMadeBesideTheStores(t *testing.T) {
	s := newSaved(t)
	if got := s.backedUp(); got != "!NotYet" {
		t.Fatalf("before the first: %s", got)
	}
	cron, config, secret := &batchv1.CronJob{}, &corev1.ConfigMap{}, &corev1.Secret{}
	claim := &corev1.PersistentVolumeClaim{}
	for name, object := range map[string]client.Object{BackupName: cron, BackupName + "-files": secret} {
		if err := s.Reader.Get(t.Context(), s.at(name), object); err != nil {
			t.Fatal(err)
		}
	}
	for _, object := range []client.Object{config, claim} {
		if err := s.Reader.Get(t.Context(), s.at(BackupName), object); err != nil {
			t.Fatal(err)
		}
	}
	var source backup.Source
	if err := json.Unmarshal([]byte(config.Data[sourceKey]), &source); err != nil {
		t.Fatal(err)
	}
	read := 0
	for _, store := range source.Stores {
		for _, file := range []string{store.TLS.CA, store.TLS.Cert, store.TLS.Key} {
			read++
			if path.Dir(file) != backupFiles || len(secret.Data[path.Base(file)]) == 0 {
				t.Errorf("%s is not in the Secret", file)
			}
		}
	}
	if len(source.Map.Resources) < 50 || read < 6 || len(secret.Data) > read ||
		strings.Contains(config.Data[sourceKey], "PRIVATE") || len(config.Data[sourceKey]) > 800_000 {
		t.Errorf("%d resources, %d files of %d, %d bytes", len(source.Map.Resources), read, len(secret.Data),
			len(config.Data[sourceKey]))
	}
	pod := cron.Spec.JobTemplate.Spec.Template
	if cron.Spec.Schedule != "30 2 * * *" || *cron.Spec.TimeZone != "Europe/Berlin" || *cron.Spec.Suspend ||
		*pod.Spec.AutomountServiceAccountToken || !slices.Contains(pod.Spec.Containers[0].Args, "--keep=3") {
		t.Errorf("%+v", cron.Spec)
	}
	// 2026-01-02 03:04:05 UTC is after half past two; the next one is at 01:30 UTC of the next day.
	status, _ := s.looked()
	if want := time.Date(2026, 1, 3, 1, 30, 0, 0, time.UTC); !status.Backup.Next.Time.Equal(want) {
		t.Errorf("the next one is at %v, want %v", status.Backup.Next, want)
	}
	s.now = time.Date(2026, 1, 3, 1, 31, 0, 0, time.UTC)
	name := s.saves()
	if got := s.backedUp(); got != "Verified" {
		t.Fatalf("after the first: %s", got)
	}
	status, after := s.looked()
	if last := status.Backup.Last; last == nil || last.Name != name || last.Stores[0].Keys != 5 ||
		len(status.Backup.Kept) != 2 || after > s.Repair {
		t.Errorf("%+v, again after %v", status.Backup, after)
	}
	s.now = s.now.Add(25 * time.Hour) // one is being made, or was missed
	if got := s.backedUp(); got != "Verified" {
		t.Errorf("after a day: %s", got)
	}
	if _, after := s.looked(); after > time.Minute {
		t.Errorf("one that is due is looked for after %v", after)
	}
	s.now = s.now.Add(24 * time.Hour)
	if got := s.backedUp(); got != "!TooOld" {
		t.Errorf("after two days: %s", got)
	}
	for message, want := range map[string]string{"": "ended with 1", `{"error":"store core: no answer"}`: "no answer"} {
		s.ends(1, message)
		if got := s.backedUp(); got != "!TooOld" {
			t.Errorf("with %q: %s", message, got)
		}
		status, _ := s.looked()
		if failed := status.Backup.Failed; failed == nil || !strings.Contains(failed.Error, want) {
			t.Errorf("%q: %+v", message, failed)
		}
		s.now = s.now.Add(time.Second)
	}
	s.saves()
	if status, _ := s.looked(); s.backedUp() != "Verified" || status.Backup.Failed != nil {
		t.Errorf("after a good one: %s, %+v", s.backedUp(), status.Backup)
	}
	s.now = s.now.Add(time.Second)
	s.ends(0, `{"schema":"other"}`)
	if got := s.backedUp(); got != "!Failed" {
		t.Errorf("a pod of another version: %s", got)
	}
	// What was applied by an older operator is applied again.
	if err := s.Reader.Get(t.Context(), s.at(BackupName), cron); err != nil {
		t.Fatal(err)
	}
	cron.Annotations[configSum] = "old"
	cron.Spec.Schedule = "0 0 1 1 *"
	if err := s.Client.Update(t.Context(), cron); err != nil {
		t.Fatal(err)
	}
	s.looked()
	if err := s.Reader.Get(t.Context(), s.at(BackupName), cron); err != nil || cron.Spec.Schedule != "30 2 * * *" {
		t.Errorf("schedule %q, %v", cron.Spec.Schedule, err)
	}
	// Without spec.backup it goes, and what was saved stays.
	s.edit(func(spec map[string]any) { delete(spec, "backup") })
	if got := s.backedUp(); got != "" || s.object().Status.Backup != nil {
		t.Errorf("without: %s", got)
	}
	if err := s.Reader.Get(t.Context(), s.at(BackupName), cron); !apierrors.IsNotFound(err) {
		t.Errorf("the CronJob: %v", err)
	}
	if err := s.Reader.Get(t.Context(), s.at(BackupName), claim); err != nil {
		t.Errorf("the volume: %v", err)
	}
}

// TestBackupsOfAClockThatWasAhead: one that is of a time to come is not the last one, by which no other would be missed
// until then; the next one is.
func TestBackupsOfAClockThatWasAhead(t *testing.T) {
	s := newSaved(t)
	s.looked()
	now := time.Date(2026, 1, 3, 1, 31, 0, 0, time.UTC)
	s.now = now.AddDate(10, 0, 0)
	s.saves()
	s.now = now
	pod := &corev1.Pod{}
	if err := s.Client.Get(t.Context(), s.at("backup-1"), pod); err != nil {
		t.Fatal(err)
	}
	pod.CreationTimestamp = metav1.NewTime(now) // by the management cluster
	if err := s.Client.Update(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	if got := s.backedUp(); got != "!Failed" {
		t.Errorf("after one of a time to come: %s, %+v", got, s.object().Status.Backup)
	}
	s.now = now.Add(time.Minute)
	name := s.saves()
	if got, last := s.backedUp(), s.object().Status.Backup.Last; got != "Verified" || last == nil || last.Name != name {
		t.Errorf("after the next one: %s, %+v", got, last)
	}
	// As an operator of before has put it into the status.
	f := s.object()
	f.Status.Backup.Last.At = metav1.NewTime(now.AddDate(10, 0, 0))
	if err := s.Client.Status().Update(t.Context(), f); err != nil {
		t.Fatal(err)
	}
	s.now = now.AddDate(0, 0, 3)
	if got := s.backedUp(); got != "!TooOld" {
		t.Errorf("after three days without one: %s", got)
	}
}

// TestACronJobOfSomebodyElse is left alone.
func TestACronJobOfSomebodyElse(t *testing.T) {
	s := newSaved(t)
	cron := &batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{Namespace: s.names[0], Name: BackupName},
		Spec: batchv1.CronJobSpec{Schedule: "1 1 1 1 1"}}
	if err := s.Client.Create(t.Context(), cron); err != nil {
		t.Fatal(err)
	}
	_, err := s.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: s.names[0]}})
	if err == nil || !strings.Contains(err.Error(), "does not belong") {
		t.Errorf("%v", err)
	}
	if err := s.Reader.Get(t.Context(), s.at(BackupName), cron); err != nil || cron.Spec.Schedule != "1 1 1 1 1" {
		t.Errorf("%v, %v", cron.Spec, err)
	}
}

// settle stands in for the managers and the kubelets: what is applied runs, and a job ends as told. It returns the
// workloads and the members' jobs that there are, by their members.
func (s *saved) settle(succeeds func(args []string) bool) (workloads int, jobs []string) {
	s.t.Helper()
	ctx := s.t.Context()
	deployments, sets, list := &appsv1.DeploymentList{}, &appsv1.StatefulSetList{}, &batchv1.JobList{}
	for _, l := range []client.ObjectList{deployments, sets, list} {
		if err := s.Client.List(ctx, l, client.InNamespace(s.names[0])); err != nil {
			s.t.Fatal(err)
		}
	}
	update := func(o client.Object) {
		if err := s.Client.Status().Update(ctx, o); err != nil {
			s.t.Fatal(err)
		}
	}
	for i := range deployments.Items {
		d := &deployments.Items[i]
		d.Status = appsv1.DeploymentStatus{ObservedGeneration: d.Generation, Replicas: 1, AvailableReplicas: 1,
			UpdatedReplicas: 1}
		update(d)
	}
	for i := range sets.Items {
		set := &sets.Items[i]
		set.Status = appsv1.StatefulSetStatus{ObservedGeneration: set.Generation, Replicas: 1, ReadyReplicas: 1,
			UpdatedReplicas: 1}
		update(set)
	}
	for i := range list.Items {
		j := &list.Items[i]
		args := j.Spec.Template.Spec.Containers[0].Args
		direction := "restore "
		if slices.Contains(args, "--back") {
			direction = "back "
		}
		jobs = append(jobs, direction+j.Labels[memberLabel])
		if succeeds(args) {
			j.Status.Succeeded = 1
		} else {
			j.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobFailed, Status: corev1.ConditionTrue,
				Message: "has reached the specified backoff limit"}}
		}
		update(j)
	}
	slices.Sort(jobs)
	return len(deployments.Items) + len(sets.Items), jobs
}

// carry reconciles until no transition goes on, and returns which jobs there were while nothing ran.
func (s *saved) carry(succeeds func(args []string) bool) (jobs []string) {
	s.t.Helper()
	began := false
	for range 60 {
		_, err := s.Reconcile(s.t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: s.names[0]}})
		if err != nil && !strings.Contains(err.Error(), " failed: ") {
			s.t.Fatal(err)
		}
		status := s.object().Status
		began = began || status.Transition != nil
		if began && status.Transition == nil {
			return jobs
		}
		workloads, now := s.settle(succeeds)
		for _, job := range now {
			if !slices.Contains(jobs, job) {
				jobs = append(jobs, job)
				if workloads > 0 && status.Transition != nil {
					s.t.Errorf("%s begins while %d workloads are there", job, workloads)
				}
			}
		}
		s.now = s.now.Add(4 * time.Minute) // a step has a quarter of an hour
	}
	s.t.Fatalf("the transition does not end: %+v", s.object().Status.Conditions)
	return nil
}

// TestStoresArePutBack: the annotation with the name of a backup stops everything, puts each member back, and starts
// everything again, once. No backup is made meanwhile.
func TestStoresArePutBack(t *testing.T) {
	s := newSaved(t)
	s.looked()
	name := s.saves()
	s.looked()
	s.annotate(api.AnnotationRestore, "20200101T000000Z")
	if status, _ := s.looked(); status.Phase != api.Refused {
		t.Fatalf("phase %s with a backup that is not there", status.Phase)
	}
	s.annotate(api.AnnotationRestore, name)
	suspended := false
	jobs := s.carry(func(args []string) bool {
		cron := &batchv1.CronJob{}
		if err := s.Reader.Get(t.Context(), s.at(BackupName), cron); err != nil {
			t.Fatal(err)
		}
		suspended = *cron.Spec.Suspend
		return true
	})
	if want := []string{"restore etcd-core-0", "restore etcd-modern-0"}; !slices.Equal(jobs, want) {
		t.Errorf("jobs %q, want %q", jobs, want)
	}
	status, _ := s.looked()
	if status.Phase != api.Running || status.History[0].To != "backup "+name || status.History[0].Error != "" ||
		!suspended {
		t.Errorf("phase %s, %+v; no backup meanwhile: %t", status.Phase, status.History, suspended)
	}
	cron := &batchv1.CronJob{}
	if err := s.Reader.Get(t.Context(), s.at(BackupName), cron); err != nil || *cron.Spec.Suspend {
		t.Errorf("backups are still suspended, %v", err)
	}
	for range 3 {
		if status, _ := s.looked(); status.Transition != nil || len(status.History) != 1 {
			t.Fatalf("it is done again: %+v", status)
		}
	}
	if workloads, _ := s.settle(func([]string) bool { return true }); workloads != 7 {
		t.Errorf("%d workloads run", workloads)
	}
}

// TestAFailedRestoreGoesBack: one member cannot be put back; what the others had comes back, and everything starts.
func TestAFailedRestoreGoesBack(t *testing.T) {
	s := newSaved(t)
	s.looked()
	name := s.saves()
	s.looked()
	s.annotate(api.AnnotationRestore, name)
	jobs := s.carry(func(args []string) bool {
		return slices.Contains(args, "--back") || !slices.Contains(args, "--name=etcd-modern-0")
	})
	want := []string{"restore etcd-core-0", "restore etcd-modern-0", "back etcd-modern-0", "back etcd-core-0"}
	if !slices.Equal(jobs, want) {
		t.Errorf("jobs %q, want %q", jobs, want)
	}
	status, _ := s.looked()
	if status.Phase != api.Running || !strings.Contains(status.History[0].Error, "backoff limit") {
		t.Errorf("phase %s, %+v", status.Phase, status.History)
	}
	if workloads, _ := s.settle(func([]string) bool { return true }); workloads != 7 {
		t.Errorf("%d workloads run", workloads)
	}
}

// TestARestoreIsOfItsControlPlane: a record says nothing else.
func TestARestoreIsOfItsControlPlane(t *testing.T) {
	v := judge(example(t))
	for name, change := range map[string]func(*transition.Member){
		"":                    func(*transition.Member) {},
		"another namespace":   func(m *transition.Member) { m.Namespace = "kube-system" },
		"a way out":           func(m *transition.Member) { m.Backup = "../other/20260101T000000Z" },
		"a variable":          func(m *transition.Member) { m.Store = "$(X)" },
		"the root":            func(m *transition.Member) { m.DataDir = "/" },
		"no clean directory":  func(m *transition.Member) { m.DataDir = "/var/../etc" },
		"a claim of no label": func(m *transition.Member) { m.Claim = "../x" },
	} {
		steps, err := transition.NewRestore(v.plan, "20260101T000000Z", "20260102t000000z")
		if err != nil {
			t.Fatal(err)
		}
		at := slices.IndexFunc(steps.Steps, func(s transition.Step) bool {
			return s.Do.Kind == transition.RestoreMember
		})
		change(steps.Steps[at].Do.Member)
		r := &record{Runs: v.digest, Plan: v.plan, Open: &open{To: v.digest, Plan: v.plan, Transition: steps}}
		if err := r.validate("hosted"); (err == nil) != (name == "") {
			t.Errorf("%q: %v", name, err)
		}
	}
}
