package roles_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/kubefusion/fusionctl/pkg/policy"
	"github.com/kubefusion/fusionctl/pkg/policy/roles"
)

// parse reads objects from YAML, each of them short of its apiVersion.
func parse(t *testing.T, text string) (list []roles.Object) {
	t.Helper()
	for document := range strings.SplitSeq(text, "\n---\n") {
		var tree map[string]any
		if err := yaml.Unmarshal([]byte(document), &tree); err != nil {
			t.Fatal(err)
		}
		if tree == nil {
			continue
		}
		tree["apiVersion"] = "rbac.authorization.k8s.io/v1"
		o, err := roles.Read(tree)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, o)
	}
	return list
}

const reader = `
kind: ClusterRole
metadata: {name: reader, uid: u1, ownerReferences: [{apiVersion: v1, kind: X, name: x, uid: y}], resourceVersion: "5",
  annotations: {kubectl.kubernetes.io/last-applied-configuration: "{}", note: kept}, labels: {team: a}}
rules:
- {verbs: [get, list], apiGroups: [""], resources: [pods]}
- {verbs: [get], nonResourceURLs: [/healthz]}
---
kind: ClusterRoleBinding
metadata: {name: readers, uid: u2}
roleRef: {kind: ClusterRole, name: reader, apiGroup: rbac.authorization.k8s.io}
subjects: [{kind: Group, name: viewers, apiGroup: rbac.authorization.k8s.io}]
`

func keysOf(list []roles.Object) (keys []string) {
	for i := range list {
		keys = append(keys, list[i].Key())
	}
	return keys
}

// TestCopiesFollowTheirOriginals: what is copied once is not copied again, what was changed or deleted since is, and
// what the other side has by itself is never touched.
func TestCopiesFollowTheirOriginals(t *testing.T) {
	from, own := parse(t, reader), parse(t, "kind: ClusterRole\nmetadata: {name: own, uid: m1}")
	c, problems := roles.Copy(from, own)
	if len(problems) > 0 || len(c.Create) != 2 || len(c.Change)+len(c.Remove) > 0 {
		t.Fatalf("Copy = %+v, %q", c, problems)
	}
	of := c.Create[0]
	if of.UID == "" || of.UID == "u1" || of.OwnerReferences != nil || of.ResourceVersion != "" ||
		of.Annotations["note"] != "kept" || of.Labels["team"] != "a" || len(of.Annotations) != 2 {
		t.Errorf("the copy is %+v", of.ObjectMeta)
	}
	there := c.Apply(own)
	if c, problems = roles.Copy(from, there); len(problems)+len(c.Create)+len(c.Change)+len(c.Remove) > 0 {
		t.Errorf("once more, Copy = %+v, %q", c, problems)
	}
	changed := parse(t, strings.ReplaceAll(reader, "viewers", "others"))
	if c, problems = roles.Copy(changed, there); len(problems) > 0 || len(c.Change) != 1 ||
		c.Change[0].Subjects[0].Name != "others" || c.Change[0].UID != there[2].UID {
		t.Errorf("with another subject, Copy = %+v, %q", c, problems)
	}
	if c, problems = roles.Copy(from[:1], there); len(problems) > 0 ||
		!slices.Equal(keysOf(c.Remove), []string{"clusterrolebindings/readers"}) {
		t.Errorf("with a binding deleted, Copy = %+v, %q", c, problems)
	}
	if after := keysOf(c.Apply(there)); !slices.Equal(after, []string{"clusterroles/own", "clusterroles/reader"}) {
		t.Errorf("afterwards there are %q", after)
	}
	if remove, problems := roles.Withdraw(there); len(problems) > 0 || len(remove) != 2 {
		t.Errorf("Withdraw = %q, %q", keysOf(remove), problems)
	}
	there[1].Rules = there[1].Rules[:1]
	if remove, problems := roles.Withdraw(there); len(problems) != 1 || len(remove) != 1 ||
		!strings.HasPrefix(problems[0], "clusterroles/reader: was changed since it was copied") {
		t.Errorf("with a copy that was changed, Withdraw = %q, %q", keysOf(remove), problems)
	}
}

// TestRolesAreReplacedWhereTheyDecide: what both lists have is a person's from then on, withdrawn or narrowed; what one
// of them has alone comes or goes, and so does what it allows there.
func TestRolesAreReplacedWhereTheyDecide(t *testing.T) {
	role := func(name, verbs string) string {
		return "\n---\nkind: ClusterRole\nmetadata: {name: " + name + "}\nrules: [{verbs: [" + verbs +
			"], apiGroups: [''], resources: [pods]}]"
	}
	was := parse(t, reader+role("wide", "'*'")+role("ends", "get"))
	is := parse(t, reader+role("wide", "get")+role("begins", "get"))
	legacy := parse(t, role("stored", "get"))
	first, _ := roles.Copy(slices.Concat(was, legacy), nil)
	there := first.Apply(nil)
	c, problems := roles.Replace(was, is, there)
	if len(problems) > 0 || !slices.Equal(keysOf(c.Create), []string{"clusterroles/begins"}) ||
		!slices.Equal(keysOf(c.Change), []string{"clusterroles/wide"}) || c.Change[0].Rules[0].Verbs[0] != "get" ||
		!slices.Equal(keysOf(c.Remove), []string{"clusterroles/ends"}) {
		t.Errorf("Replace = %+v, %q", c, problems)
	}
	after := c.Apply(there)
	if c, problems := roles.Replace(was, is, after); len(problems)+len(c.Create)+len(c.Change)+len(c.Remove) > 0 {
		t.Errorf("once more, Replace = %+v, %q", c, problems)
	}
	if c, problems := roles.Replace(is, was, after); len(problems) > 0 || len(c.Create) != 1 || len(c.Change) != 1 ||
		len(c.Remove) != 1 || c.Create[0].Name != "ends" || c.Change[0].Rules[0].Verbs[0] != "*" {
		t.Errorf("and back, Replace = %+v, %q", c, problems)
	}
	own := parse(t, role("wide", "list")+role("ends", "list"))
	for name, there := range map[string][]roles.Object{"all withdrawn": nil, "a person's own": own} {
		c, problems := roles.Replace(was, is, there)
		if len(problems)+len(c.Change)+len(c.Remove) > 0 || !slices.Equal(keysOf(c.Create),
			[]string{"clusterroles/begins"}) {
			t.Errorf("%s: Replace = %+v, %q", name, c, problems)
		}
	}
	for i := range there { // by a person, each of them
		if there[i].RoleRef == nil {
			there[i].Rules = own[0].Rules
		} else {
			there[i].Subjects = nil
		}
	}
	if c, problems := roles.Replace(was, is, there); len(problems) != 2 || len(c.Change)+len(c.Remove) > 0 ||
		!strings.HasPrefix(problems[0], "clusterroles/wide: was changed since it was copied: delete it, or take its "+
			"annotation kubefusion.dev/copied away") || !strings.HasPrefix(problems[1], "clusterroles/ends: ") {
		t.Errorf("changed since, Replace = %+v, %q", c, problems)
	}
}

// TestWhatStandsAgainstCopies names each object, and what differs.
func TestWhatStandsAgainstCopies(t *testing.T) {
	role := func(name, labels, verbs string) string {
		return fmt.Sprintf("kind: ClusterRole\nmetadata: {name: %s, labels: {%s}}\nrules: [{verbs: [%s], apiGroups: "+
			"[\"\"], resources: [pods]}]\n---\n", name, labels, verbs)
	}
	binding := func(role, user string) string {
		return fmt.Sprintf("kind: RoleBinding\nmetadata: {name: b, namespace: demo}\nroleRef: {kind: ClusterRole, "+
			"name: %s}\nsubjects: [{kind: User, name: %s}]\n---\n", role, user)
	}
	const boot = "kubernetes.io/bootstrapping: rbac-defaults"
	for name, test := range map[string]struct{ here, there, says, kept string }{
		"another role": {here: role("a", "", "get"), there: role("a", "", "get, delete"),
			says: "clusterroles/a: there is another one of this name on the other side: allowed there alone: " +
				"delete pods"},
		"less": {here: role("a", "", "get, list"), there: role("a", "", "get"),
			says: "not allowed there: list pods"},
		"the same in other words": {here: role("a", "", "get, list"), there: role("a", "x: z", "list, get, get")},
		"more words":              {here: role("a", "", "'*'"), there: role("a", "", "'*', get")},
		"bootstrap": {here: role("edit", boot, "get, list"), there: role("edit", boot, "get, watch"),
			kept: "clusterroles/edit: is what the API server there creates by itself, and differs: not allowed " +
				"there: list pods; allowed there alone: watch pods"},
		"a binding without its role": {here: binding("gone", "bob"), there: role("gone", "", "delete"),
			says: "rolebindings/demo/b: binds clusterroles/gone, which is not there, but on the other side"},
		"a binding without its role, anywhere": {here: binding("gone", "bob")},
		"another subject": {here: role("a", "", "get") + binding("a", "bob"), there: binding("a", "eve"),
			says: "not bound there: User bob; bound there alone: User eve"},
		"being deleted": {here: "kind: ClusterRole\nmetadata: {name: a, deletionTimestamp: 2026-01-01T00:00:00Z}",
			says: "clusterroles/a: is being deleted"},
	} {
		c, problems := roles.Copy(parse(t, test.here), parse(t, test.there))
		text := strings.Join(problems, "\n")
		if !strings.Contains(text, test.says) || (text == "") != (test.says == "") {
			t.Errorf("%s: %q, want %q", name, text, test.says)
		}
		kept := ""
		for _, k := range c.Kept {
			kept += k.Key + ": " + k.Why
		}
		if kept != test.kept {
			t.Errorf("%s: kept %q, want %q", name, kept, test.kept)
		}
	}
}

// TestProve names what subjects lose and gain, by whatever way.
func TestProve(t *testing.T) {
	before := parse(t, reader+`---
kind: Role
metadata: {name: writer, namespace: demo}
rules: [{verbs: [update], apiGroups: [apps], resources: [deployments, "*/scale"], resourceNames: [web]}]
---
kind: RoleBinding
metadata: {name: writers, namespace: demo}
roleRef: {kind: Role, name: writer}
subjects: [{kind: ServiceAccount, name: bot}, {kind: User, name: bob}]
---
kind: ClusterRole
metadata: {name: admin, labels: {kubernetes.io/bootstrapping: rbac-defaults}}
aggregationRule: {clusterRoleSelectors: [{matchLabels: {to-admin: "true"}}]}
rules: [{verbs: [get], apiGroups: [""], resources: [secrets]}]
---
kind: ClusterRole
metadata: {name: admin-part, labels: {to-admin: "true"}}
rules: [{verbs: [get], apiGroups: [""], resources: [secrets]}]
---
kind: ClusterRoleBinding
metadata: {name: admins}
roleRef: {kind: ClusterRole, name: admin}
subjects: [{kind: User, name: ann}]
`)
	prove := func(own string) roles.Proof {
		t.Helper()
		there := parse(t, own)
		c, problems := roles.Copy(before, there)
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		return roles.Prove(before, there, c.Apply(there))
	}
	if p := prove(""); len(p.Lost)+len(p.Missing)+len(p.Gained) > 0 {
		t.Errorf("beside nothing: %+v", p)
	}
	p := prove("kind: ClusterRole\nmetadata: {name: notebooks, labels: {to-admin: \"true\"}}\nrules: [{verbs: [get], " +
		"apiGroups: [kubeflow.org], resources: [notebooks]}]")
	if want := []roles.Change{{Subject: "User ann", Rule: "get notebooks.kubeflow.org"}}; !cmp.Equal(want, p.Gained) ||
		len(p.Lost)+len(p.Missing) > 0 {
		t.Errorf("beside a role that is aggregated: %+v", p)
	}
	// what the other API server creates by itself stays: named, and no reason to stop
	p = prove("kind: ClusterRole\nmetadata: {name: admin, labels: {kubernetes.io/bootstrapping: rbac-defaults}}\n" +
		"rules: [{verbs: [list], apiGroups: [\"\"], resources: [secrets]}]")
	if len(p.Missing) > 0 || !cmp.Equal([]roles.Change{{Subject: "User ann", Rule: "get secrets"}}, p.Lost) ||
		!cmp.Equal([]roles.Change{{Subject: "User ann", Rule: "list secrets"}}, p.Gained) {
		t.Errorf("beside another admin: %+v", p)
	}
	lost := roles.Prove(before, nil, before[2:]).Missing
	text := fmt.Sprint(lost)
	if len(lost) != 3 || !strings.Contains(text, "Group viewers get /healthz") {
		t.Errorf("without the readers: %s", text)
	}
	lost = roles.Prove(before, nil, slices.Concat(before[:3], before[4:])).Missing
	if text := fmt.Sprint(lost); len(lost) != 4 || !strings.Contains(text,
		"User system:serviceaccount:demo:bot update */scale.apps web in demo") {
		t.Errorf("without the writers: %s", text)
	}
	groups := parse(t, `
kind: Role
metadata: {name: writer, namespace: demo}
rules: [{verbs: ["*"], apiGroups: ["*"], resources: ["*"]}]
---
kind: RoleBinding
metadata: {name: writers, namespace: demo}
roleRef: {kind: Role, name: writer}
subjects: [{kind: Group, name: "system:serviceaccounts:demo"}]
`)
	bot := slices.Clone(before[2:4])
	bot[1].Subjects = bot[1].Subjects[:1]
	if p := roles.Prove(bot, nil, groups); len(p.Lost) > 0 {
		t.Errorf("as a member of its group: %+v", p.Lost)
	}
	if p := roles.Prove(groups, nil, bot); len(p.Lost) != 1 || len(p.Gained) != 0 {
		t.Errorf("a group is more than a member: %+v", p)
	}
}

// TestRolesThatAreBombs: a role says as much as its verbs, groups, resources and names multiplied, and a binding has as
// many subjects as fit. What is equal on both sides is equal; what is not is compared up to a bound, and then named.
func TestRolesThatAreBombs(t *testing.T) {
	words := func(n int) string { return "[" + strings.TrimSuffix(strings.Repeat("aa,", n), ",") + "]" }
	bomb := func(name string, n int) []roles.Object {
		return parse(t, "kind: Role\nmetadata: {name: "+name+", namespace: demo}\nrules: [{verbs: "+words(n)+
			", apiGroups: "+words(n)+", resources: "+words(n)+", resourceNames: "+words(n)+"}]\n---\n"+
			"kind: RoleBinding\nmetadata: {name: b, namespace: demo}\nroleRef: {kind: Role, name: "+name+"}\n"+
			"subjects: [{kind: User, name: ann}]")
	}
	big := bomb("a", 1000)
	const tooMuch = "User ann does what roles/demo/a allows, which names too much to be compared in demo"
	c, problems := roles.Copy(big, nil)
	if p := roles.Prove(big, nil, c.Apply(nil)); len(problems)+len(p.Lost)+len(p.Missing)+len(p.Gained) > 0 {
		t.Errorf("copied as it is: %q, %v", problems, p.Lost)
	}
	if p := roles.Prove(big, nil, nil); len(p.Missing) != 1 || !strings.HasSuffix(p.Missing[0].String(), tooMuch) {
		t.Errorf("without its copy: %v", p.Missing)
	}
	if w := roles.WakingOf(nil, big); len(w) != 1 || !strings.HasSuffix(fmt.Sprint(w[0].Then[0]), tooMuch) {
		t.Errorf("waking: %v", w)
	}
	if _, problems := roles.Copy(big, bomb("a", 999)); len(problems) != 1 ||
		!strings.Contains(problems[0], "too much to be compared") {
		t.Errorf("beside another one: %.300q", problems)
	}
	many := bomb("m", 2)
	for i := range 20_000 {
		many[0].Rules = append(many[0].Rules, many[0].Rules[0])
		many[1].Subjects = append(many[1].Subjects, rbacv1.Subject{Kind: "User", Name: fmt.Sprint("u", i)})
	}
	c, problems = roles.Copy(many, nil)
	if p := roles.Prove(many, nil, c.Apply(nil)); len(problems)+len(p.Lost)+len(p.Missing)+len(p.Gained) > 0 {
		t.Errorf("many copied as they are: %q, %v", problems, p.Lost)
	}
	if p := roles.Prove(many, nil, nil); len(p.Missing) == 0 {
		t.Error("many without their copies: nothing is missing")
	}
	if _, problems := roles.Copy(many, bomb("m", 3)); len(problems) != 1 {
		t.Errorf("many beside others: %.300q", problems)
	}
}

// TestRolesThatAggregateEachOther have what all of them have, and end.
func TestRolesThatAggregateEachOther(t *testing.T) {
	var text strings.Builder
	for i := range 40 {
		fmt.Fprintf(&text, "kind: ClusterRole\nmetadata: {name: r%d, labels: {a: b}}\naggregationRule: "+
			"{clusterRoleSelectors: [{matchLabels: {a: b}}]}\n---\n", i)
	}
	text.WriteString("kind: ClusterRole\nmetadata: {name: part, labels: {a: b}}\nrules: [{verbs: [get], " +
		"apiGroups: [\"\"], resources: [pods]}]\n---\nkind: ClusterRoleBinding\nmetadata: {name: b}\n" +
		"roleRef: {kind: ClusterRole, name: r7}\n" +
		"subjects: [{kind: User, name: ann}]")
	there := parse(t, text.String())
	if p := roles.Prove(nil, nil, there); len(p.Gained) != 1 || p.Gained[0].String() != "User ann get pods" {
		t.Errorf("%v", p.Gained)
	}
}

// TestPoliciesBecomeRoles: lines of ABAC are proven as roles are.
func TestPoliciesBecomeRoles(t *testing.T) {
	rules, err := policy.Parse("p", strings.NewReader(`{"apiVersion":"abac.authorization.kubernetes.io/v1beta1",`+
		`"kind":"Policy","spec":{"user":"system:serviceaccount:demo:bot","namespace":"demo","resource":"pods"}}`))
	if err != nil {
		t.Fatal(err)
	}
	from := roles.OfPolicy(policy.ToRBAC(rules, nil))
	c, problems := roles.Copy(from, nil)
	if len(from) != 2 || len(problems) > 0 || len(c.Create) != 2 {
		t.Fatalf("Copy(%q) = %+v, %q", keysOf(from), c, problems)
	}
	if p := roles.Prove(from, nil, c.Apply(nil)); len(p.Lost)+len(p.Gained) > 0 {
		t.Errorf("Prove = %+v", p)
	}
	if p := roles.Prove(from, nil, nil); len(p.Lost) == 0 || p.Lost[0].Namespace != "demo" {
		t.Errorf("without copies, Prove = %+v", p)
	}
}

// TestReadRefusesWhatItDoesNotKnow: a field that is dropped could be one that restricts.
func TestReadRefusesWhatItDoesNotKnow(t *testing.T) {
	const api = "rbac.authorization.k8s.io/v1"
	for _, tree := range []map[string]any{
		{"apiVersion": api, "kind": "Role", "metadata": map[string]any{"name": "a"}, "only": "sometimes"},
		{"apiVersion": "v1", "kind": "Role", "metadata": map[string]any{"name": "a"}},
		{"apiVersion": api, "kind": "Pod", "metadata": map[string]any{"name": "a"}},
		{"apiVersion": api, "kind": "RoleBinding", "metadata": map[string]any{"name": "a"}},
		{"apiVersion": api, "kind": "Role", "metadata": map[string]any{"name": "a"}, "roleRef": map[string]any{}},
		{"apiVersion": api, "kind": "Role"},
	} {
		if o, err := roles.Read(tree); err == nil {
			t.Errorf("Read(%v) = %+v", tree, o)
		}
	}
}

// FuzzRead: what is read is read again from what is written, allows the same, and its copy is known as one.
func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"Role","metadata":{"name":"a","namespace":"b"},` +
		`"rules":[{"verbs":["get"],"apiGroups":[""],"resources":["pods"]}]}`))
	f.Add([]byte(`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRoleBinding","metadata":{"name":"a"},` +
		`"roleRef":{"kind":"ClusterRole","name":"x"},"subjects":[{"kind":"User","name":"u"}]}`))
	f.Add([]byte(`{"metadata":null}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var tree map[string]any
		if json.Unmarshal(data, &tree) != nil {
			return
		}
		o, err := roles.Read(tree)
		if err != nil {
			return
		}
		text, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		var written map[string]any
		if err := json.Unmarshal(text, &written); err != nil {
			t.Fatal(err)
		}
		again, err := roles.Read(written)
		if err != nil || again.Key() != o.Key() {
			t.Fatalf("%s becomes %s, %v", data, again.Key(), err)
		}
		o.DeletionTimestamp = nil
		c, problems := roles.Copy([]roles.Object{o}, nil)
		if len(problems) > 0 || len(c.Create) != 1 {
			t.Fatalf("copying %s: %v, %q", text, c, problems)
		}
		next, problems := roles.Copy([]roles.Object{o}, c.Apply(nil))
		if len(problems) > 0 || len(next.Create)+len(next.Change)+len(next.Remove) > 0 {
			t.Errorf("copying %s again: %+v, %q", text, next, problems)
		}
		if p := roles.Prove([]roles.Object{o}, nil, c.Apply(nil)); len(p.Missing) > 0 && o.AggregationRule == nil {
			t.Errorf("the copy of %s does not allow %v", text, p.Missing)
		}
	})
}
