# Every target works on a machine that has only Go.
GO ?= go

.PHONY: site alerts release release-deps release-test build check test golden demo bench diff fmt lint rig rig-all e2e evidence evidence-all conformance facts-verify fuzz fuzz-short vulncheck facts-propose

build: ## the command, as bin/fusionctl, linked statically: it runs in any image
	CGO_ENABLED=0 $(GO) build -trimpath -o bin/fusionctl ./cmd/fusionctl

check: fmt lint test ## what CI runs first

fmt:
	@bad=$$(gofmt -l $$(git ls-files --cached --others --exclude-standard '*.go')); test -z "$$bad" || { echo "gofmt these files:"; echo "$$bad"; exit 1; }

lint:
	$(GO) vet ./...
	$(GO) vet -tags e2e ./test/e2e
	$(GO) run -modfile=tools/go.mod honnef.co/go/tools/cmd/staticcheck ./...
	@# this module imports the one at hand: it needs another go.mod when the imports here change
	@cd test/abacdiff && $(GO) list -test -deps ./... >/dev/null || { echo "run go mod tidy in test/abacdiff"; exit 1; }

test:
	$(GO) test ./...

golden: ## rewrite the golden files, then look at the diff
	$(GO) test $$(grep -rl --include='*_test.go' internal/golden . | xargs -n1 dirname | sort -u) -update

demo:
	$(GO) run ./cmd/fusionctl demo

bench:
	$(GO) test -run '^$$' -bench . -benchmem ./...

FUZZTIME ?= 10m

fuzz: ## every fuzz target for FUZZTIME; inputs that fail go to testdata/fuzz, to be committed with what mends them
	$(GO) run ./test/fuzz -time $(FUZZTIME)

fuzz-short: ## every fuzz target for 10 s, and all of them within some 5 minutes, on two cores
	$(GO) run ./test/fuzz -time 10s -within 4m

vulncheck: ## known vulnerabilities of the dependencies; needs https://vuln.go.dev, or GOVULNDB=file:///path/to/a/copy
	$(GO) run -modfile=tools/go.mod golang.org/x/vuln/cmd/govulncheck $(if $(GOVULNDB),-db $(GOVULNDB)) ./...

diff: ## hold pkg/policy against the API server's own ABAC authorizer (k8s.io/kubernetes): files, millions of decisions, speed;
	## and the losses of pkg/convert against the types of k8s.io/api of old releases
	cd test/abacdiff && $(GO) vet . && $(GO) test -count=1 -timeout 60m .
	$(GO) test -tags diff -count=1 -timeout 60m ./test/convertdiff

alerts: ## read alert rules and dashboard with Prometheus' own parser, and let each alert fire
	cd test/promrules && $(GO) vet . && $(GO) test -count=1 .

site: ## the documentation as static pages, with search, in dist/site
	$(GO) run ./internal/site/build -site dist/site

release-deps: ## the modules of fusionctl and of what makes its releases, once, so that make release needs no network
	$(GO) mod download
	cd tools/release && $(GO) mod download

release: ## VERSION=v1.2.3: archives, packages, image, manifests and checksums in dist/, of the commit at hand
	@{ GOPROXY=off $(GO) list -deps ./cmd/fusionctl && cd tools/release && GOPROXY=off $(GO) list -deps .; } \
		>/dev/null 2>&1 || { echo "modules are missing: make release-deps downloads them, once" >&2; exit 1; }
	rm -rf dist
	cd tools/release && GOPROXY=off $(GO) run -trimpath . -version "$(VERSION)" -source $(CURDIR) -out $(CURDIR)/dist

release-test: ## make a release for linux/amd64 twice, compare, install the package, run the image
	cd tools/release && $(GO) vet . && $(GO) test -count=1 -timeout 30m .

rig: ## the real servers of the end-to-end tests, as test/rig/bin/kube-apiserver-1.N; says how long it will take
	$(GO) run ./test/rig/build
	cd test/rig/etcd && CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-s -w' -o ../bin/etcd go.etcd.io/etcd/server/v3
	cd test/rig/etcd && CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-s -w' -o ../bin/etcdctl go.etcd.io/etcd/etcdctl/v3
	cd test/rig/sample-apiserver && CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-s -w' -o ../bin/sample-apiserver k8s.io/sample-apiserver
	cd test/rig/helm && CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-s -w' -o ../bin/helm helm.sh/helm/v3/cmd/helm

rig-all: ## the releases on request as well; tests of single releases, and pairs, then run them too
	$(GO) run ./test/rig/build all

E2E_TIMEOUT ?= 2h

e2e: rig ## real servers of several releases, one and two at a time
	$(GO) test -tags e2e -count=1 -parallel 3 -timeout $(E2E_TIMEOUT) ./test/e2e ./test/rig/propose

facts-propose: ## RELEASE=v1.37.2: rows of that minor for the tables of facts, as a difference; WRITE=1 writes them; UPDATE=1: for a minor that is there
	$(GO) run ./test/rig/propose -release "$(RELEASE)" $(if $(UPDATE),-update) $(if $(WRITE),-write)

facts-verify: rig ## hold the facts against the real programs: their help, their parsers, their discovery, what they store
	$(GO) test -tags e2e -count=1 -timeout 20m -run Facts ./test/e2e
	$(GO) test -tags e2e -count=1 -timeout 20m ./test/rig/propose

evidence-all: rig-all ## facts of every release of the rig, and every pair of them, as pkg/rules/proven.tsv and docs/matrix.md. Takes
	## hours; started again, it goes on where it was stopped
	$(GO) test -tags e2e -count=1 -timeout 60m -run Facts ./test/e2e
	$(GO) test -tags e2e -count=1 -parallel 5 -timeout 12h -v -run '^TestPairs$$' ./test/e2e -every-pair -proven $(CURDIR)/pkg/rules/proven.tsv
	$(GO) test ./pkg/rules -run TestMatrixPageIsCurrent -update

conformance: rig ## Kubernetes' own conformance tests of the API's machinery, at the gateway and beside it, as docs/conformance.md
	cd tools/conformance && CGO_ENABLED=0 $(GO) test -c -vet=off -trimpath -ldflags '-s -w' -o ../../test/rig/bin/conformance .
	$(GO) test -tags e2e -count=1 -timeout 90m -run '^TestConformance$$' ./test/e2e -conformance $(CURDIR)/docs/conformance.md

evidence: rig ## the end-to-end tests, and what they proved as docs/evidence.md; TESTS=REGEXP: of these alone, the rest stays
	FUSIONCTL_E2E_ADOPTED=all $(GO) test -tags e2e -count=1 -parallel 3 -timeout 90m ./test/e2e $(if $(TESTS),-run '$(TESTS)') -evidence $(CURDIR)/docs/evidence.md
