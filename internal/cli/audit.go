package cli

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"

	"github.com/spf13/pflag"
	"gopkg.in/natefinch/lumberjack.v2"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/audit/policy"

	"github.com/kubefusion/fusionctl/pkg/gateway"
)

// auditFlags are those of an audit log, as API servers have them.
type auditFlags struct {
	path, policy, mode     string
	days, files, megabytes int
	compress               bool
}

func (a *auditFlags) bind(f *pflag.FlagSet) {
	f.StringVar(&a.path, "audit-log-path", "", "file of the audit log; - for standard output (default none)")
	f.StringVar(&a.policy, "audit-policy-file", "", "file of the audit policy: kind Policy of audit.k8s.io/v1")
	f.StringVar(&a.mode, "audit-log-mode", "blocking", "blocking, or blocking-strict: requests whose first event "+
		"cannot be written are refused")
	f.IntVar(&a.days, "audit-log-maxage", 0, "days for which rotated files are kept; 0 for no bound")
	f.IntVar(&a.files, "audit-log-maxbackup", 0, "number of rotated files that are kept; 0 for no bound")
	f.IntVar(&a.megabytes, "audit-log-maxsize", 100, "megabytes at which the file is rotated; 0 for never")
	f.BoolVar(&a.compress, "audit-log-compress", false, "compress rotated files with gzip")
}

// open opens the log; nil for none.
func (a *auditFlags) open(streams Streams) (*gateway.Audit, io.Closer, error) {
	none := io.NopCloser(nil)
	switch {
	case (a.path == "") != (a.policy == ""):
		return nil, none, usagef("--audit-log-path and --audit-policy-file: want both, or none")
	case a.mode != "blocking" && a.mode != "blocking-strict":
		return nil, none, usagef("--audit-log-mode %q: want blocking or blocking-strict", a.mode)
	case a.days < 0 || a.files < 0 || a.megabytes < 0:
		return nil, none, usagef("--audit-log-maxage, --audit-log-maxbackup and --audit-log-maxsize: want 0 or more")
	case a.path == "":
		return nil, none, nil
	}
	rules, err := auditPolicy(streams, a.policy)
	if err != nil {
		return nil, none, err
	}
	made := &gateway.Audit{Policy: policy.NewPolicyRuleEvaluator(rules), Strict: a.mode == "blocking-strict"}
	if a.path == "-" {
		made.Log = streams.Out
		return made, none, nil
	}
	// A log that cannot be written is found now, and not with the first request.
	if err := os.MkdirAll(filepath.Dir(a.path), 0o700); err != nil {
		return nil, none, badInput(fmt.Errorf("--audit-log-path: %w", err), "")
	}
	file, err := os.OpenFile(a.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err == nil {
		err = file.Close()
	}
	if err != nil {
		return nil, none, badInput(fmt.Errorf("--audit-log-path: %w", err), "")
	}
	// To the writer of files 0 is a default of its own.
	log := &lumberjack.Logger{Filename: a.path, MaxAge: a.days, MaxBackups: a.files,
		MaxSize: cmp.Or(a.megabytes, math.MaxInt32), Compress: a.compress}
	const megabyte = 1 << 20
	made.Log, made.LimitBytes = log, min(10*megabyte, int64(log.MaxSize)*megabyte)
	return made, log, nil
}

const limitAuditPolicy = 1 << 20

// auditPolicy reads a policy strictly: a rule with an unknown field would record something else than it says.
func auditPolicy(streams Streams, file string) (*auditinternal.Policy, error) {
	data, err := readInput(streams, file, limitAuditPolicy)
	if err != nil {
		return nil, err
	}
	var rules *auditinternal.Policy
	decoder := serializer.NewCodecFactory(audit.Scheme, serializer.EnableStrict).UniversalDecoder()
	if _, _, err = decoder.Decode(data, nil, &auditinternal.Policy{}); err == nil {
		rules, err = policy.LoadPolicyFromBytes(data)
	}
	if err != nil {
		return nil, badInput(fmt.Errorf("%s: %w", file, err), "want apiVersion audit.k8s.io/v1, kind Policy")
	}
	return rules, nil
}
