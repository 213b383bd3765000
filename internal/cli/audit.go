package cli

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"gopkg.in/natefinch/lumberjack.v2"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/audit/policy"
	"k8s.io/apiserver/plugin/pkg/audit/buffered"

	"github.com/kubefusion/fusionctl/pkg/gateway"
)

// auditFlags are those of an audit log, as API servers have them.
type auditFlags struct {
	path, policy, mode     string
	days, files, megabytes int
	compress               bool
	batch                  buffered.BatchConfig // of mode batch
}

func (a *auditFlags) bind(f *pflag.FlagSet) {
	f.StringVar(&a.path, "audit-log-path", "", "file of the audit log; - for standard output (default none)")
	f.StringVar(&a.policy, "audit-policy-file", "", "file of the audit policy: kind Policy of audit.k8s.io/v1")
	f.StringVar(&a.mode, "audit-log-mode", gateway.AuditBlocking, "blocking; blocking-strict: requests whose first "+
		"event cannot be written are refused; or batch: requests do not wait for events, which are buffered")
	// The names and defaults are those of API servers.
	f.IntVar(&a.batch.BufferSize, "audit-log-batch-buffer-size", 10000,
		"events that are buffered in mode batch; more are dropped, and counted")
	f.IntVar(&a.batch.MaxBatchSize, "audit-log-batch-max-size", 1, "events of a batch, in mode batch")
	f.DurationVar(&a.batch.MaxBatchWait, "audit-log-batch-max-wait", 0,
		"how long a batch waits for its last event, in mode batch, where it has more than one")
	f.BoolVar(&a.batch.ThrottleEnable, "audit-log-batch-throttle-enable", false, "limit the batches of mode batch by "+
		"--audit-log-batch-throttle-qps")
	f.Float32Var(&a.batch.ThrottleQPS, "audit-log-batch-throttle-qps", 0, "batches a second, on average")
	f.IntVar(&a.batch.ThrottleBurst, "audit-log-batch-throttle-burst", 0,
		"batches at the same moment, after there were fewer")
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
	case !slices.Contains(gateway.AuditModes, a.mode):
		return nil, none, usagef("--audit-log-mode %q: want one of %s", a.mode, strings.Join(gateway.AuditModes, ", "))
	case a.batch.BufferSize <= 0 || a.batch.MaxBatchSize <= 0 || a.batch.MaxBatchWait < 0:
		return nil, none, usagef("--audit-log-batch-buffer-size and --audit-log-batch-max-size: want more than 0; " +
			"--audit-log-batch-max-wait: want 0 or more")
	case a.batch.MaxBatchSize > 1 && a.batch.MaxBatchWait == 0 && a.mode == gateway.AuditBatch:
		return nil, none, usagef("--audit-log-batch-max-size %d: want --audit-log-batch-max-wait, too",
			a.batch.MaxBatchSize)
	case a.batch.ThrottleEnable && (a.batch.ThrottleQPS <= 0 || a.batch.ThrottleBurst <= 0):
		return nil, none, usagef("--audit-log-batch-throttle-enable: want --audit-log-batch-throttle-qps and " +
			"--audit-log-batch-throttle-burst of more than 0")
	case a.days < 0 || a.files < 0 || a.megabytes < 0:
		return nil, none, usagef("--audit-log-maxage, --audit-log-maxbackup and --audit-log-maxsize: want 0 or more")
	case a.path == "":
		return nil, none, nil
	}
	rules, err := auditPolicy(streams, a.policy)
	if err != nil {
		return nil, none, err
	}
	made := &gateway.Audit{Policy: policy.NewPolicyRuleEvaluator(rules), Mode: a.mode, Batch: a.batch}
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
