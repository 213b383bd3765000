package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kubefusion/fusionctl/internal/visible"
	"github.com/kubefusion/fusionctl/pkg/policy"
)

type policyCanIRequest struct {
	file          string
	args          []string // VERB, what, and a name
	user          string
	groups        []string
	exactGroups   bool
	namespace     string
	allNamespaces bool
	subresource   string
	path          string
	list          bool
	who           bool
	quiet         bool
	output        string
}

func newPolicyCanICmd(streams Streams) *cobra.Command {
	var req policyCanIRequest
	cmd := &cobra.Command{
		Use:   "can-i FILE VERB RESOURCE[.GROUP][/SUBRESOURCE] [NAME]",
		Short: "Report whether a policy allows a request",
		Long: `can-i decides by a policy what "kubectl auth can-i" asks a server. A resource without a group is the core
group's, or that of the one group that has it; "deployments." is the core group's in any case. Without -n a request for
a namespaced resource is in namespace "default", with -A without a namespace, as in a list over all of them.

As a server does, it adds group system:authenticated to the user's groups, those of a service account, and
system:unauthenticated for system:anonymous. --exact-groups adds none.

--list prints the rules for the user in the namespace; --who prints the subjects of the file that may make the request,
and for a read in a namespace those that may list or watch the resource over all namespaces.
Group system:masters is allowed everything, whatever the policy.

Exit codes: 0 yes, 2 bad usage or a bad file, 3 no.`,
		Example: `  fusionctl policy can-i policy.jsonl --as alice create deployments.apps -n team-a
  fusionctl policy can-i policy.jsonl --as system:serviceaccount:ci:bot get pods/log -n team-a
  fusionctl policy can-i policy.jsonl --as system:anonymous --path /metrics
  fusionctl policy can-i policy.jsonl --as alice --as-group devs --list -n team-a
  fusionctl policy can-i policy.jsonl --who delete secrets -n kube-system`,
		Args: cobra.RangeArgs(1, 4),
		RunE: func(_ *cobra.Command, args []string) error {
			req.file, req.args = args[0], args[1:]
			return runPolicyCanI(req, streams)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&req.user, "as", "", "the user; a service account is system:serviceaccount:NAMESPACE:NAME")
	flags.StringArrayVar(&req.groups, "as-group", nil, "a group of the user; repeat for more")
	flags.BoolVar(&req.exactGroups, "exact-groups", false, "do not add the groups that a server adds")
	flags.StringVarP(&req.namespace, "namespace", "n", "", "the namespace")
	flags.BoolVarP(&req.allNamespaces, "all-namespaces", "A", false,
		"a request without a namespace; with --list, all namespaces")
	flags.StringVar(&req.subresource, "subresource", "",
		"the subresource; rules do not distinguish it from its resource")
	flags.StringVar(&req.path, "path", "", "a request for this path instead of a resource; the verb is then get "+
		"unless given")
	flags.BoolVar(&req.list, "list", false, "print the rules for the user")
	flags.BoolVar(&req.who, "who", false, "print the subjects that may make the request")
	flags.BoolVarP(&req.quiet, "quiet", "q", false, "print nothing; only the exit code")
	enumFlag(cmd, &req.output, "output", "o", "output format", "table", "json", "yaml")
	return cmd
}

func runPolicyCanI(req policyCanIRequest, streams Streams) error {
	q, err := req.request(streams)
	if err != nil {
		return err
	}
	rules, err := readPolicy(streams, req.file)
	if err != nil {
		return err
	}
	switch {
	case req.list:
		return listRules(req, q, rules, streams)
	case req.who:
		return printWho(req, q, policy.Who(rules, q), streams)
	}
	rule, allowed := policy.NewAuthorizer(rules).Match(q.Attributes())
	document := canIDocument{Schema: "fusionctl/policy-can-i/v1", Allowed: allowed, Request: q}
	if allowed {
		document.Line, document.Rule = rule.Line, rule.String()
	}
	if err := printCanI(req, document, streams); err != nil {
		return err
	}
	if !allowed {
		return errAttention
	}
	return nil
}

// request makes a request of the flags and arguments, as far as the question has one.
func (req policyCanIRequest) request(streams Streams) (policy.Request, error) {
	q := policy.Request{User: req.user, Groups: req.groups, Subresource: req.subresource, Path: req.path,
		Namespace: req.namespace}
	switch {
	case req.list && req.who:
		return q, usagef("--list and --who: want one of them")
	case req.namespace != "" && req.allNamespaces:
		return q, usagef("--namespace and --all-namespaces: want one of them")
	case req.user == "" && !req.who:
		return q, badInput(fmt.Errorf("no user"), "--as USER names the user")
	}
	if !req.exactGroups {
		q = q.Authenticated()
	}
	if req.list {
		if len(req.args) > 0 {
			return q, usagef("--list takes no verb and no resource")
		}
		if req.allNamespaces {
			q.Namespace = "*"
		}
		return q, nil
	}
	args := req.args
	if len(args) > 1 && strings.HasPrefix(args[1], "/") && req.path == "" {
		q.Path = args[1]
		args = append(args[:1:1], args[2:]...)
	}
	if q.Path != "" {
		if len(args) > 1 {
			return q, usagef("%q: a path and a resource; want one of them", args[1])
		}
		q.Verb, q.Namespace, q.Subresource = "get", "", ""
		if len(args) == 1 {
			q.Verb = strings.ToLower(args[0])
		}
		return q, nil
	}
	if len(args) < 2 {
		return q, usagef("want VERB RESOURCE, or --path")
	}
	q.Verb = args[0]
	if len(args) == 3 {
		q.ObjectName = args[2]
	}
	q, notes, err := policy.NewCatalog().Complete(q, args[1], req.allNamespaces)
	for _, note := range notes {
		visible.Fprintf(streams.Err, "note: %s\n", note)
	}
	return q, badInput(err, "")
}

type canIDocument struct {
	Schema  string         `json:"schema"`
	Allowed bool           `json:"allowed"`
	Line    int            `json:"line,omitempty"`
	Rule    string         `json:"rule,omitempty"`
	Request policy.Request `json:"request"`
}

func printCanI(req policyCanIRequest, document canIDocument, streams Streams) error {
	if req.quiet {
		return nil
	}
	if printed, err := printDocument(streams.Out, req.output, document); printed {
		return err
	}
	if !document.Allowed {
		_, err := visible.Fprintf(streams.Out, "no: no rule allows %s\n", document.Request)
		return err
	}
	_, err := visible.Fprintf(streams.Out, "yes: %s:%d: %s\n", req.file, document.Line, document.Rule)
	return err
}

type reachDocument struct {
	Schema  string         `json:"schema"`
	Request policy.Request `json:"request"`
	Rules   []policy.Reach `json:"rules"`
}

func printWho(req policyCanIRequest, q policy.Request, reach []policy.Reach, streams Streams) error {
	q.User, q.Groups = "", nil
	return printReach(req, reachDocument{Schema: "fusionctl/policy-who/v1", Request: q, Rules: reach}, streams)
}

func listRules(req policyCanIRequest, q policy.Request, rules []policy.Rule, streams Streams) error {
	var reach []policy.Reach
	for _, r := range policy.RulesOf(rules, q) {
		reach = append(reach, policy.ReachOf(r))
	}
	return printReach(req, reachDocument{Schema: "fusionctl/policy-list/v1", Request: q, Rules: reach}, streams)
}

// printReach prints rules with their subjects; none is a denial.
func printReach(req policyCanIRequest, document reachDocument, streams Streams) error {
	printed, err := req.quiet, error(nil)
	if !printed {
		printed, err = printDocument(streams.Out, req.output, document)
	}
	if !printed {
		err = printTable(streams.Out, func(t io.Writer) {
			visible.Fprintln(t, "LINE\tWHO\tMAY")
			for _, r := range document.Rules {
				visible.Fprintf(t, "%d\t%s\t%s\n", r.Line, r.Who, r.May)
			}
		})
	}
	if err == nil && len(document.Rules) == 0 {
		return errAttention
	}
	return err
}
