package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// undecided stands where a person has to decide. Tests of pkg/kubever refuse it.
const undecided = "?"

// propose adds the minor to all tables: what programs and descriptions of the release say, and, where people read
// sources, what holds in the minor before. It returns what they have to decide.
func (all tables) propose(r release, f facts) []string {
	p := proposal{tables: all, minor: r.minor, facts: f}
	all.carry(r.minor)
	p.releases(strings.TrimPrefix(r.version, "v1."))
	p.flags()
	p.gates()
	p.admission()
	p.served()
	p.kinds()
	p.stored()
	p.fields()
	p.required()
	p.controllers()
	p.aliases()
	return p.decide
}

type proposal struct {
	tables
	minor  int
	facts  facts
	decide []string
}

func (p *proposal) ask(format string, args ...any) {
	p.decide = append(p.decide, fmt.Sprintf(format, args...))
}

func (p *proposal) releases(patch string) {
	t := p.tables["releases"]
	t.rows = slices.DeleteFunc(t.rows, func(row []string) bool { return row[0] == strconv.Itoa(p.minor) })
	i := slices.IndexFunc(t.rows, func(row []string) bool { n, _ := strconv.Atoi(row[0]); return n > p.minor })
	if i < 0 {
		i = len(t.rows)
	}
	t.rows = slices.Insert(t.rows, i, []string{strconv.Itoa(p.minor), "1." + patch})
}

// row finds the row of a fact, or adds one to a table that ascends by its first columns: empty, but for these.
func (p *proposal) row(name string, width int, key ...string) []string {
	t := p.tables[name]
	if row, ok := t.find(key...); ok {
		return row
	}
	row := slices.Concat(key, slices.Repeat([]string{"-"}, width-len(key)))
	t.insert(len(key), row)
	return row
}

func (p *proposal) flags() {
	for _, name := range slices.Sorted(maps.Keys(p.facts.components)) {
		for _, flag := range p.facts.components[name].Flags {
			row := p.row("flags", 6, name, flag.Name)
			_, known := valueAt(row[5], p.minor-1)
			known = known || !holds(row[2], p.minor-1) // a flag whose default depends on the machine has none
			row[2] = with(row[2], p.minor)
			row[3] = holding(row[3], p.minor, flag.Deprecated != "" || flag.SaysDeprecated)
			if known && !strings.ContainsAny(flag.Default, " \t\n") {
				row[5] = withValue(row[5], p.minor, flag.Default)
			}
			if flag.Deprecated != "" {
				p.deprecation(name, flag.Name, strings.Join(strings.Fields(flag.Deprecated), " "))
			}
		}
	}
}

// deprecation adds the minor to the row that has the message, or a row.
func (p *proposal) deprecation(component, flag, message string) {
	t := p.tables["deprecations"]
	for _, row := range t.rows {
		if row[0] == component && row[1] == flag && row[3] == message {
			row[2] = with(row[2], p.minor)
			return
		}
	}
	i := 0
	for i < len(t.rows) && slices.Compare(t.rows[i][:2], []string{component, flag}) <= 0 {
		i++
	}
	t.rows = slices.Insert(t.rows, i, []string{component, flag, strconv.Itoa(p.minor), message})
}

func (p *proposal) gates() {
	knownTo := map[string][]string{}
	turned := []string{}
	for _, name := range slices.Sorted(maps.Keys(p.facts.components)) {
		for _, gate := range p.facts.components[name].Gates {
			state := gate.Stage + ",off"
			if gate.Default {
				state = gate.Stage + ",on"
			}
			if gate.Locked {
				state += ",locked"
			}
			row := p.row("gates", 3, gate.Name)
			if known, ok := valueAt(row[2], p.minor); ok && known != state && len(knownTo[gate.Name]) > 0 {
				p.ask("gates.tsv: %s is %s in %s and %s in %s: the table has one state for all", gate.Name, known,
					strings.Join(knownTo[gate.Name], ", "), state, name)
				continue
			}
			before, had := valueAt(row[2], p.minor-1)
			if len(knownTo[gate.Name]) == 0 && had && strings.Contains(before, ",on") != gate.Default {
				turned = append(turned, gate.Name)
			}
			row[2] = withValue(row[2], p.minor, state)
			knownTo[gate.Name] = append(knownTo[gate.Name], name)
		}
	}
	for _, gate := range slices.Sorted(maps.Keys(knownTo)) {
		if len(knownTo[gate]) < len(p.facts.components) {
			for _, component := range knownTo[gate] {
				row := p.row("gates-only", 3, gate, component)
				row[2] = with(row[2], p.minor)
			}
		}
	}
	if len(turned) > 0 {
		slices.Sort(turned)
		p.ask("startup.tsv, resources.tsv, behaviours.tsv: these gates have another default than in 1.%d; does the "+
			"server "+
			"write something by itself, or decide otherwise, because of one? %s", p.minor-1, strings.Join(turned, " "))
	}
}

func (p *proposal) admission() {
	for _, plugin := range p.facts.Admission {
		row := p.row("admission", 3, plugin)
		row[1] = with(row[1], p.minor)
		row[2] = holding(row[2], p.minor, slices.Contains(p.facts.AdmissionOn, plugin))
	}
	for name, modes := range map[string][]string{"authorization": p.facts.Authorization,
		"reconcilers": p.facts.Reconcilers} {
		for _, mode := range modes {
			row := p.row(name, 2, mode)
			row[1] = with(row[1], p.minor)
		}
	}
	order := strings.Join(p.facts.Admission, " ")
	t := p.tables["admission-order"]
	for _, row := range t.rows {
		if row[1] == order {
			row[0] = with(row[0], p.minor)
			return
		}
	}
	t.rows = append(t.rows, []string{strconv.Itoa(p.minor), order})
}

func (p *proposal) served() {
	for _, r := range p.facts.resources {
		row := p.row("api", 7, r.groupVersion(), r.Name)
		row[2], row[3] = r.Kind, yes(r.Namespaced)
		row[4] = with(row[4], p.minor)
		row[5] = holding(row[5], p.minor, r.On)
		for _, sub := range r.Subresources {
			row[6] = withName(row[6], sub, p.minor, true)
		}
		if len(r.ShortNames) > 0 {
			row := p.row("short-names", 2, r.Name)
			words := slices.Concat(strings.Fields(strings.Trim(row[1], "-")), r.ShortNames)
			slices.Sort(words)
			row[1] = strings.Join(slices.Compact(words), " ")
		}
		for _, kind := range p.facts.Kinds {
			if kind.GroupVersion == r.groupVersion() && kind.Kind == r.Kind && 0 < kind.Deprecated &&
				kind.Deprecated <= p.minor {
				if row := p.row("api-deprecated", 3, kind.GroupVersion, kind.Kind); row[2] == "-" {
					row[2] = strconv.Itoa(kind.Deprecated)
				}
			}
		}
	}
}

func yes(is bool) string {
	if is {
		return "yes"
	}
	return "-"
}

// kinds are those of resources that are stored; other kinds of the same schemes are requests and lists.
func (p *proposal) kinds() {
	type groupKind struct{ group, kind string } // a request of one group may have the name of a kind of another
	stored := map[groupKind]bool{}
	for _, r := range p.facts.resources {
		stored[groupKind{r.Group, r.Kind}] = stored[groupKind{r.Group, r.Kind}] || r.Stored
	}
	for _, kind := range p.facts.Kinds {
		before, ok := p.tables["kinds"].find(kind.GroupVersion, kind.Kind)
		group, _, named := strings.Cut(kind.GroupVersion, "/")
		if !named {
			group = ""
		}
		if stored[groupKind{group, kind.Kind}] || ok && holds(before[2], p.minor-1) {
			row := p.row("kinds", 3, kind.GroupVersion, kind.Kind)
			row[2] = with(row[2], p.minor)
		}
	}
}

func (p *proposal) stored() {
	t := p.tables["resources"]
	seen := map[string]bool{}
	for _, r := range p.facts.resources {
		if r.Key == "" || seen[r.Key] {
			continue
		}
		seen[r.Key] = true
		row, ok := t.find(r.Key)
		if !ok {
			row = []string{r.Key, r.Name, r.Kind, yes(r.Namespaced), "-", "-", "-", "own"}
			t.insert(1, row)
			p.ask("resources.tsv: %s is new: which set of pkg/plan/resources.go is it decided with, if any?", r.Key)
		}
		if before, ok := valueAt(row[5], p.minor-1); ok && before != r.StoredAs {
			p.ask("resources.tsv: %s is stored as %s, by 1.%d as %s: docs and goldens that name it change", r.Key,
				r.StoredAs, p.minor-1, before)
		}
		row[5] = withValue(row[5], p.minor, r.StoredAs)
	}
	for _, row := range t.rows {
		before, ok := valueAt(row[5], p.minor-1)
		if !ok || seen[row[0]] {
			continue
		}
		// Other servers in the process keep it, or the server for itself: programs do not say how.
		if row[7] == "main" || !p.everServed(row[1]) {
			row[5] = withValue(row[5], p.minor, before)
			if row[7] != "main" && !holds(row[4], p.minor) {
				p.ask("resources.tsv: %s, kept by servers for themselves, was not written by default in 1.%d: is it "+
					"now?", row[0], p.minor-1)
			}
		} else {
			p.ask("resources.tsv: %s is not in the API description any more: what 1.%d stored stays in etcd", row[0],
				p.minor-1)
		}
	}
}

// everServed reports whether a resource of this name is in the API of any minor.
func (p *proposal) everServed(name string) bool {
	return slices.ContainsFunc(p.tables["api"].rows, func(row []string) bool { return row[1] == name })
}

func (p *proposal) fields() {
	fields := slices.SortedFunc(maps.Keys(p.facts.fields), func(a, b [2]string) int {
		return slices.Compare(a[:], b[:])
	})
	t := p.tables["fields"]
	rows := make(map[[2]string][]string, len(t.rows))
	for _, row := range t.rows {
		rows[[2]string{row[0], row[1]}] = row
	}
	for _, field := range fields {
		row := rows[field]
		if row == nil {
			row = []string{field[0], field[1], "-"}
			t.rows = append(t.rows, row)
		}
		row[2] = withValue(row[2], p.minor, p.facts.fields[field])
	}
	slices.SortFunc(t.rows, func(a, b []string) int { return slices.Compare(a[:2], b[:2]) })
}

func (p *proposal) required() {
	t := p.tables["required"]
	rows := make(map[[2]string][]string, len(t.rows))
	for _, row := range t.rows {
		rows[[2]string{row[0], row[1]}] = row
		row[2] = holding(row[2], p.minor, p.facts.required[[2]string{row[0], row[1]}])
	}
	for field := range p.facts.required {
		if rows[field] == nil {
			t.rows = append(t.rows, []string{field[0], field[1], strconv.Itoa(p.minor)})
		}
	}
	slices.SortFunc(t.rows, func(a, b []string) int { return slices.Compare(a[:2], b[:2]) })
	t.rows = slices.DeleteFunc(t.rows, func(row []string) bool { return row[2] == "-" })
}

func (p *proposal) controllers() {
	t := p.tables["controllers"]
	seen := map[string]bool{}
	for _, c := range p.facts.Controllers {
		seen[c.Name] = true
		row, ok := t.find(c.Name)
		if !ok {
			row = []string{c.Name, undecided, "-", "-", "-", "-", yes(c.Cloud), p.account(c.Name)}
			t.insert(1, row)
			p.access(c.Name)
			p.ask("controllers.tsv, access.tsv: %s is new: give it its conflict class; compare what it reads, writes "+
				"and deletes (the proposal is its role) and its feature gates with its code", c.Name)
		}
		row[2] = withValue(row[2], p.minor, c.Name)
		if len(c.Aliases) > 0 {
			row[3] = withValue(row[3], p.minor, strings.Join(c.Aliases, ","))
		}
		row[4] = holding(row[4], p.minor, c.Off)
		p.gatesOf(row, c.Gates)
	}
	for _, row := range t.rows {
		if name, ok := valueAt(row[2], p.minor-1); ok && !seen[row[0]] {
			p.ask("controllers.tsv: %s (%s in 1.%d) is gone: what does its work?", row[0], name, p.minor-1)
		}
	}
}

// gatesOf sets the gates of a controller. People found some that its descriptor does not name, in its constructor: they
// stay as long as the release knows them.
func (p *proposal) gatesOf(row, named []string) {
	before, _ := valueAt(row[5], p.minor-1)
	var gates []string
	for _, gate := range strings.FieldsFunc(strings.TrimPrefix(before, "!"), func(r rune) bool { return r == ',' }) {
		if state, ok := p.tables["gates"].find(gate); ok {
			if _, known := valueAt(state[2], p.minor); known {
				gates = append(gates, gate)
			}
		}
	}
	for _, gate := range named {
		if !slices.Contains(gates, gate) {
			gates = append(gates, gate)
		}
	}
	if len(gates) > 0 {
		row[5] = withValue(row[5], p.minor, strings.Join(gates, ","))
	}
}

// account is the service account of a controller: the name of its role, where there is one.
func (p *proposal) account(controller string) string {
	for _, role := range p.facts.Roles {
		if role.Metadata.Name == "system:controller:"+controller {
			return controller
		}
	}
	return undecided
}

// access proposes what a controller touches: what its role allows, but for events.
func (p *proposal) access(controller string) {
	touched := map[string][]string{}
	for _, role := range p.facts.Roles {
		if role.Metadata.Name != "system:controller:"+controller {
			continue
		}
		for _, rule := range role.Rules {
			for _, name := range rule.Resources {
				name, _, _ = strings.Cut(name, "/")
				if key := p.key(rule.APIGroups, name); key != "events" {
					for _, verb := range rule.Verbs {
						touched[verb] = append(touched[verb], key)
					}
				}
			}
		}
	}
	subject := undecided
	if strings.HasSuffix(controller, "-controller") {
		stem := strings.TrimSuffix(strings.TrimSuffix(controller, "-controller"), "-protection")
		for _, row := range p.tables["resources"].rows {
			if strings.TrimSuffix(row[1], "s") == stem {
				subject = row[0]
			}
		}
	}
	columns := [][]string{{"get", "list", "watch"}, {"create", "update", "patch"}, {"delete", "deletecollection"}}
	row := []string{controller, subject}
	for _, verbs := range columns {
		var keys []string
		for _, verb := range verbs {
			keys = append(keys, touched[verb]...)
		}
		slices.Sort(keys)
		row = append(row, cmp.Or(strings.Join(slices.Compact(keys), " "), "-"))
	}
	p.tables["access"].insert(1, row)
}

// key is where a resource is stored.
func (p *proposal) key(groups []string, name string) string {
	for _, r := range p.facts.resources {
		if r.Name == name && r.Key != "" && slices.Contains(groups, r.Group) {
			return r.Key
		}
	}
	return name
}

// aliases ends with the flags themselves.
func (p *proposal) aliases() {
	for _, row := range p.tables["flag-aliases"].rows {
		flag, ok := p.tables["flags"].find(row[0], row[1])
		if holds(row[2], p.minor) && (!ok || !holds(flag[2], p.minor)) {
			row[2] = holding(row[2], p.minor, false)
			p.ask("flag-aliases.tsv: %s has no --%s any more", row[0], row[1])
		}
	}
}
