package cli

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/kubefusion/fusionctl/pkg/policy"
)

// policyLimitBytes bounds the policy files that are read: more than a million rules.
const policyLimitBytes = 256 << 20

// crdsLimitBytes bounds the files with CustomResourceDefinitions that are read: a cluster's, many times over.
const crdsLimitBytes = 64 << 20

func newPolicyCmd(streams Streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "policy",
		Short: "Write, check, compare and prove ABAC policies",
		Long: `The policy verbs work on the files of --authorization-policy-file, which Kubernetes reads with
--authorization-mode=ABAC: one rule per line, in JSON. They read a file exactly as the server does, traps included;
"policy validate" names the traps.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(
		newPolicyValidateCmd(streams),
		newPolicyGenerateCmd(streams),
		newPolicyPresetsCmd(streams),
		newPolicyCanICmd(streams),
		newPolicyTestCmd(streams),
		newPolicyDiffCmd(streams),
		newPolicyProveCmd(streams),
		newPolicyToRBACCmd(streams),
		newPolicyFromAuditCmd(streams),
		newPolicyServeCmd(streams),
	)
	return cmd
}

// readPolicy reads a policy as the server does. A file that the server would refuse is bad input.
func readPolicy(streams Streams, file string) ([]policy.Rule, error) {
	in, err := openInput(streams, file)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	rules, err := policy.Parse(file, &limitedReader{r: in, left: policyLimitBytes, limit: policyLimitBytes})
	if err != nil {
		return nil, badInput(err, "fusionctl policy validate "+file+" shows how to write it")
	}
	return rules, nil
}

// limitedReader fails at a limit, where io.LimitReader would pretend that the file ends.
type limitedReader struct {
	r           io.Reader
	left, limit int64
}

func (l *limitedReader) Read(p []byte) (int, error) {
	if l.left <= 0 {
		return 0, fmt.Errorf("larger than %d bytes", l.limit)
	}
	n, err := l.r.Read(p[:min(int64(len(p)), l.left)])
	l.left -= int64(n)
	return n, err
}

// catalogWith is what is known of APIs, with the CustomResourceDefinitions of files.
func catalogWith(streams Streams, files []string) (*policy.Catalog, error) {
	catalog := policy.NewCatalog()
	for _, file := range files {
		data, err := readInput(streams, file, crdsLimitBytes)
		if err != nil {
			return nil, err
		}
		if err := catalog.AddCRDs(file, data); err != nil {
			return nil, badInput(err, "")
		}
	}
	return catalog, nil
}
