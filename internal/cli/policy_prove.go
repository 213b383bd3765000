package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kubefusion/fusionctl/internal/visible"
	"github.com/kubefusion/fusionctl/pkg/policy"
)

type policyProveRequest struct {
	file   string
	crds   []string
	deny   []string
	allow  []string
	output string
}

type policyProveDocument struct {
	Schema string         `json:"schema"`
	Claims []policy.Proof `json:"claims"`
}

func newPolicyProveCmd(streams Streams) *cobra.Command {
	var req policyProveRequest
	cmd := &cobra.Command{
		Use:   "prove FILE --deny CLAIM...",
		Short: "Prove that no subject may do something, or find the subjects that may",
		Long: `prove decides claims about all users, groups and requests, including those that the policy does not name.
--deny CLAIM: no request of the claim is allowed, or a counter-example for every rule that allows one. --allow CLAIM:
every request of the claim is allowed.

  CLAIM is VERB WHAT [in NAMESPACE] [by SUBJECT]... [except SUBJECT]...
  VERB is read, write, any, or a verb of the API; WHAT is RESOURCE[.GROUP], *.GROUP, * or a path such as /debug/*;
  SUBJECT is "user NAME", "group NAME" or "serviceaccount NAMESPACE:NAME".

A resource is named as in kubectl, also by its kind or its short name; without a group the claim is about every group
that has it, with --allow about the one of the newest version. A name that no API has is refused, with a suggestion: any
claim about it is true. --crd names custom resources. With "in NAMESPACE" a denial is also about lists and watches over
all namespaces, which show its objects. The proved claim is printed in full.

A proof is about the policy alone. Group system:masters is allowed everything. Who may impersonate may do what others
may: below a denial that is proved stand the rules that allow its subjects to write users, groups, serviceaccounts, uids
or userextras.

Exit codes: 0 every claim is proved, 2 bad usage, a bad claim or a bad file, 3 a claim is refuted.`,
		Example: `  fusionctl policy prove policy.jsonl --deny 'write deployments.apps' --deny 'any secrets in kube-system except group admins'
  fusionctl policy prove policy.jsonl --allow 'read pods in team-a by group devs'`,
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			req.file = args[0]
			return runPolicyProve(req, streams)
		},
	}
	cmd.Flags().StringArrayVar(&req.deny, "deny", nil, "prove that no request of the claim is allowed; repeat for more")
	cmd.Flags().StringArrayVar(&req.allow, "allow", nil,
		"prove that every request of the claim is allowed; repeat for more")
	cmd.Flags().StringArrayVar(&req.crds, "crd", nil,
		"file with CustomResourceDefinitions, whose resources are known then; repeat for more")
	enumFlag(cmd, &req.output, "output", "o", "output format", "table", "json", "yaml")
	return cmd
}

func runPolicyProve(req policyProveRequest, streams Streams) error {
	if len(req.deny)+len(req.allow) == 0 {
		return badInput(fmt.Errorf("nothing to prove"), "--deny 'write deployments.apps' is a claim")
	}
	catalog, err := catalogWith(streams, req.crds)
	if err != nil {
		return err
	}
	document := policyProveDocument{Schema: "fusionctl/policy-prove/v1"}
	claims, err := req.claims(catalog)
	if err != nil {
		return err
	}
	rules, err := readPolicyBy(streams, req.file, policy.ParseOneMeaning)
	if err != nil {
		return err
	}
	refuted := false
	for _, c := range claims {
		proof := policy.Prove(rules, c.want, c.text, c.claim)
		refuted = refuted || !proof.Proved
		document.Claims = append(document.Claims, proof)
	}
	if err := printProofs(streams.Out, req, document); err != nil {
		return err
	}
	if refuted {
		return errAttention
	}
	return nil
}

// givenClaim is a claim as it was given.
type givenClaim struct {
	want  policy.Want
	text  string
	claim policy.Claim
}

// claims reads the claims, those about denials first.
func (req *policyProveRequest) claims(catalog *policy.Catalog) ([]givenClaim, error) {
	var claims []givenClaim
	for _, given := range []struct {
		want  policy.Want
		texts []string
	}{{policy.WantDeny, req.deny}, {policy.WantAllow, req.allow}} {
		for _, text := range given.texts {
			claim, err := policy.ParseClaim(given.want, text, catalog)
			if err == nil && given.want == policy.WantAllow && len(claim.Except) > 0 {
				err = fmt.Errorf("claim %q: except has no meaning with --allow", text)
			}
			if err != nil {
				return nil, badInput(err, "fusionctl policy prove --help shows how claims are written")
			}
			claims = append(claims, givenClaim{given.want, text, claim})
		}
	}
	return claims, nil
}

func printProofs(w io.Writer, req policyProveRequest, document policyProveDocument) error {
	if printed, err := printDocument(w, req.output, document); printed {
		return err
	}
	for _, c := range document.Claims {
		verdict := "refuted"
		if c.Proved {
			verdict = "proved"
		}
		visible.Fprintf(w, "%s: %s %s\n", verdict, c.Want, c.Claim)
		for _, r := range c.Regions {
			visible.Fprintf(w, "    of %s: %s\n", r.Who(), r.What())
		}
		if len(c.ClusterScoped) > 0 {
			visible.Fprintf(w, "    except what is cluster-scoped\n")
		}
		for _, s := range c.Except {
			visible.Fprintf(w, "    except %s\n", subjectText(s))
		}
		for _, v := range c.Violations {
			visible.Fprintf(w, "    %s:%d allows %s\n", req.file, v.Line, v.Example)
		}
		for _, v := range c.Impersonation {
			visible.Fprintf(w, "    not in the proof: %s:%d allows %s\n", req.file, v.Line, v.Example)
		}
		if c.Refused != nil {
			visible.Fprintf(w, "    no rule allows %s\n", c.Refused)
		}
	}
	return nil
}

// subjectText prints a subject as claims name it.
func subjectText(s policy.Subject) string {
	if s.Kind == policy.KindServiceAccount {
		return fmt.Sprintf("serviceaccount %q", s.Namespace+":"+s.Name)
	}
	return fmt.Sprintf("%s %q", strings.ToLower(string(s.Kind)), s.Name)
}
