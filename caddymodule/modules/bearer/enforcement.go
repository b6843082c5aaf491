package bearer

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/enforce"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/rule"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/metrics"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/option"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/scopeoption"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/sharedkey"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/searchparam"
)

// Enforcement configures how fhir_bearer limits requests and responses to the scopes of tokens.
type Enforcement struct {
	// Permit full access with every valid token, because the FHIR server enforces scopes. Default: false (they are enforced).
	ScopesOff bool `json:"scopes_off,omitempty"`

	// The FHIR server supports searches by `Patient/<id>/<type>` (FHIR R4 §3.1.1.4). One such search replaces a search per
	// membership parameter. HAPI FHIR does not support it. Default: false.
	CompartmentSearch bool `json:"compartment_search,omitempty"`

	// Rules by type, for types that are not in the patient compartment or that it covers too broadly: `everyone`, `unassigned`,
	// `security_context`, `about`, `alone`, `patient` or `closed`. Default: the table in docs/reference/resources.md.
	SharedTypes map[string]string `json:"shared,omitempty"`

	// The permitted operations, which are added to the default operations or replace them. Each is a list of words: `$name`,
	// then `patient`, `instance`, `whole`, `token` or `off`, then permissions such as `rs`, then types. Default: the list in
	// docs/reference/fhir_bearer.md.
	Operations [][]string `json:"operations,omitempty"`

	// The files with SearchParameter resources in addition to those of FHIR R4, as paths or patterns: `.json` for a resource or
	// a Bundle, `.tgz` for a FHIR package. They are read when the configuration loads. Default: none.
	SearchParameterFiles []string `json:"search_parameter_files,omitempty"`

	// The scopes for terminology operations, such as `$expand`, and for reading and searching definitions. A token must have at
	// least one of them. Default: any valid token is sufficient.
	ExpandScopes []string `json:"expand_scopes,omitempty"`

	// Permit updates under scopes with a patient or a constraint to create missing resources. This lets apps find out which ids
	// exist. Default: false (updates of missing resources get 404).
	Upsert bool `json:"upsert,omitempty"`

	// The memory in bytes for all request and response bodies that are checked concurrently. Each byte of a body counts as two.
	// A client can use at most half of the memory, and a person a quarter, unless a single request needs more. Requests that
	// wait longer than 10 s for memory get 503. The maximum size of a response is a sixteenth of the memory, but at least 16
	// MiB; larger responses are withheld. At least 64 MiB. Default: 256 MiB.
	MaxMemory int64 `json:"max_memory,omitempty"`

	// Secrets for sealing links to pages and jobs, so that links are valid at all gateways with the same secrets. Each is the
	// base64 of at least 32 random bytes. The first secret seals links; links sealed with the others remain valid. Only for
	// gateways without the fhir app, which uses its own keys. Placeholders are supported. Default: a random key per process.
	SealKeys []string `json:"seal_keys,omitempty"`

	// Record permitted reads and searches too. Default: false (only rejections, and requests that may change data).
	AuditReads bool `json:"audit_reads,omitempty"`
}

// newEnforcement returns the configured enforcement of scopes, or nil if scopes are off.
func newEnforcement(ctx caddy.Context, o *Enforcement, policies []rule.Policy, at apiLocation, app App, record func(*http.Request, enforce.Bearer, enforce.Decision)) (*scopeEnforcer, error) {
	if o.ScopesOff && len(policies)+len(o.Operations)+len(o.SharedTypes)+len(o.ExpandScopes)+len(o.SearchParameterFiles) > 0 {
		return nil, errScopesOff
	}
	if o.ScopesOff {
		return nil, nil
	}
	own, err := newSharedRules(o.SharedTypes)
	if err != nil {
		return nil, err
	}
	operations, err := newOperations(o.Operations)
	if err != nil {
		return nil, err
	}
	e := &enforce.Enforcer{
		Base: at.path, BaseURL: at.url, TypeRules: enforce.NewTypeRules(own), SupportsCompartmentSearch: o.CompartmentSearch,
		Operations: enforce.NewOperations(operations...), ExpandScopes: o.ExpandScopes, AllowsUpsert: o.Upsert, Policies: policies,
		Limits: enforce.Limits{ResponseBytes: enforce.MaxResponseSize(o.MaxMemory)}, BeforeJudging: startInspectSpan,
		OnDecision: recordSpanOutcome(record), Logger: ctx.Slogger(),
	}
	if e.Parameters, err = newSearchParameters(o.SearchParameterFiles, ctx.Slogger()); err != nil {
		return nil, err
	}
	if e.Sealing, err = newSealing(app, o.SealKeys); err != nil {
		return nil, err
	}
	e.PageStates = newPageStates(app)
	if e.Memory, err = enforce.NewMemory(o.MaxMemory, e.Limits); err != nil {
		return nil, err
	}
	return &scopeEnforcer{e}, nil
}

var errScopesOff = errors.New("scopes off cannot be combined with allow, deny, operation, shared, search_parameters or expand_scope")

func newOperations(configured [][]string) (operations []enforce.Operation, err error) {
	operations = make([]enforce.Operation, len(configured))
	for i, words := range configured {
		if operations[i], err = enforce.ParseOperation(words...); err != nil {
			return nil, fmt.Errorf("operation: %w", err)
		}
	}
	return operations, nil
}

// subdirectives returns the subdirectives that set the options.
func (e *Enforcement) subdirectives() option.Block {
	return option.Block{
		"scopes":             option.SingleValue("off", &e.ScopesOff),
		"compartment_search": option.Flag(&e.CompartmentSearch),
		"shared":             parseSharedTypes(&e.SharedTypes),
		"operation":          parseOperation(&e.Operations),
		"search_parameters":  option.Words(&e.SearchParameterFiles, nil),
		"expand_scope":       scopeoption.Words(&e.ExpandScopes, smart.CheckScope),
		"upsert":             option.Flag(&e.Upsert),
		"max_memory":         option.Size(&e.MaxMemory),
		"seal_key":           sharedkey.Words("seal_key", &e.SealKeys),
		"audit_reads":        option.Flag(&e.AuditReads),
	}
}

// parseSharedTypes returns a setter that parses one or more types followed by their rule.
func parseSharedTypes(to *map[string]string) option.Setter {
	return func(d *caddyfile.Dispenser) error {
		args := d.RemainingArgs()
		if len(args) < 2 {
			return d.ArgErr()
		}
		if *to == nil {
			*to = map[string]string{}
		}
		rule := args[len(args)-1]
		for _, resourceType := range args[:len(args)-1] {
			if err := checkSharedType(resourceType, rule); err != nil {
				return d.WrapErr(err)
			}
			if (*to)[resourceType] != "" {
				return d.Errf("duplicate rule for %s", resourceType)
			}
			(*to)[resourceType] = rule
		}
		return nil
	}
}

// newSharedRules converts the configured rules by type.
func newSharedRules(configured map[string]string) (enforce.TypeRules, error) {
	own := enforce.TypeRules{}
	for resourceType, rule := range configured {
		if err := checkSharedType(resourceType, rule); err != nil {
			return nil, err
		}
		own[resourceType] = enforce.FindTypeRule(rule)
	}
	return own, nil
}

func checkSharedType(resourceType, rule string) error {
	if !interaction.IsType(resourceType) {
		return fmt.Errorf("%q is not a resource type of FHIR R4", resourceType)
	}
	switch r := enforce.FindTypeRule(rule); {
	case r == nil:
		return fmt.Errorf("%s: unknown rule %q: use one of %v", resourceType, rule, enforce.TypeRuleNames())
	case !r.AppliesTo(resourceType):
		return fmt.Errorf("%s cannot have the rule %s: FHIR R4 has no search parameter that the rule needs", resourceType, rule)
	}
	return nil
}

// parseOperation returns a setter that parses an operation in the syntax of [enforce.ParseOperation].
func parseOperation(to *[][]string) option.Setter {
	return func(d *caddyfile.Dispenser) error {
		args := d.RemainingArgs()
		if _, err := enforce.ParseOperation(args...); err != nil {
			return d.WrapErr(fmt.Errorf("operation: %w", err))
		}
		*to = append(*to, args)
		return nil
	}
}

// scopeEnforcer limits requests to the scopes of their tokens.
type scopeEnforcer struct{ enforcer *enforce.Enforcer }

// cachedHolder is the value that is cached in a token's Memo.
type cachedHolder struct {
	fhirUser string // the token's value at the time of caching; it may change
	rights   *enforce.Rights
	binding  string
}

// serve handles a request within the scopes of its token.
func (e *scopeEnforcer) serve(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler, t *guard.Token) error {
	of, err := e.loadHolder(r, next, t)
	if err != nil {
		return err
	}
	return e.enforcer.Serve(w, r, next, enforce.Bearer{Rights: of.rights, Binding: of.binding, Token: t})
}

// loadHolder returns the holder of a token. It caches the holder, because parsing scopes is the most expensive step of a
// permitted request. Rights that depend on a relationship on the FHIR server, such as those of a RelatedPerson, are not cached.
func (e *scopeEnforcer) loadHolder(r *http.Request, next caddyhttp.Handler, t *guard.Token) (*cachedHolder, error) {
	if cached, ok := t.Memo.Load().(*cachedHolder); ok && cached.fhirUser == t.FHIRUser {
		return cached, nil
	}
	rights, cacheable, err := e.computeRights(r, next, t)
	if err != nil {
		return nil, err
	}
	of := &cachedHolder{t.FHIRUser, rights, linkBinding(t)}
	if cacheable {
		t.Memo.Store(of)
	}
	return of, nil
}

// linkBinding returns a text that binds a sealed link to a token's issuer, subject, client, patient, user and scopes.
func linkBinding(t *guard.Token) string {
	return strings.Join([]string{"fhir", t.Issuer, t.Subject, t.ClientID, t.Patient, t.FHIRUser, t.Scope}, "\x00")
}

// bindingClient returns the part of a binding that identifies the client and the person, without the scopes.
func bindingClient(binding string) string {
	return strings.Join(strings.SplitN(binding, "\x00", 5)[:4], "\x00")
}

// computeRights returns the rights of a token. cacheable reports whether they are independent of records on the FHIR server.
func (e *scopeEnforcer) computeRights(r *http.Request, next caddyhttp.Handler, t *guard.Token) (rights *enforce.Rights, cacheable bool, err error) {
	holder := enforce.Holder{Scope: t.Scope, Patient: t.Patient, User: e.userReference(t.FHIRUser), Parameters: e.enforcer.Parameters}
	cacheable = !t.IsRelated && holder.User.Type != "RelatedPerson"
	if holder.User.Type == "Patient" {
		holder.UserPatient = holder.User.ID
	}
	if !cacheable {
		if err = e.resolvePatients(r, next, t, &holder); err != nil {
			return nil, false, err
		}
	}
	rights = enforce.NewRights(holder, e.enforcer.TypeRules)
	if len(e.enforcer.ExpandScopes) == 0 || rights.HasAnyScope(e.enforcer.ExpandScopes) {
		rights.Add(enforce.TerminologyGrants()...)
	}
	return rights, cacheable, nil
}

// resolvePatients looks up the patients for whom the holder may act. It removes the token's patient if it is not one of them.
func (e *scopeEnforcer) resolvePatients(r *http.Request, next caddyhttp.Handler, t *guard.Token, holder *enforce.Holder) error {
	var patients []string
	if holder.User.Type == "RelatedPerson" || holder.User.Type == "Person" {
		var err error
		if patients, err = e.enforcer.RelatedPatients(r, next, holder.User, t); err != nil {
			return err
		}
	}
	if holder.User.Type == "RelatedPerson" && len(patients) > 0 {
		holder.UserPatient = patients[0]
	}
	if t.IsRelated && !slices.Contains(patients, t.Patient) {
		holder.Patient, holder.RelationshipEnded = "", true
	}
	return nil
}

// otherPractitioner matches the absolute URL of a Practitioner or PractitionerRole. The groups are the type and the id.
var otherPractitioner = regexp.MustCompile(`^https?://[^/?#]+/(?:[^?#]*/)?(Practitioner|PractitionerRole)/([^/?#]+)$`)

// userReference returns a reference to the resource in fhirUser if the resource is on this server. For a Practitioner or
// PractitionerRole on another server, it returns only the type. For other resources and invalid ids, it returns the zero value.
func (e *scopeEnforcer) userReference(fhirUser string) interaction.Reference {
	reference := strings.TrimPrefix(fhirUser, e.enforcer.BaseURL+"/")
	resourceType, id, ok := strings.Cut(reference, "/")
	if ok && interaction.IsType(resourceType) && interaction.IsID(id) {
		return interaction.Reference{Type: resourceType, ID: id}
	}
	if parts := otherPractitioner.FindStringSubmatch(fhirUser); parts != nil && interaction.IsID(parts[2]) {
		return interaction.Reference{Type: parts[1]}
	}
	return interaction.Reference{}
}

const (
	// maxParameterFileSize is the maximum size of a file with SearchParameter resources in bytes. Larger files in a package are
	// skipped, because they contain other resources.
	maxParameterFileSize = 16 << 20
	// maxPackageSize is the maximum size of an uncompressed package in bytes.
	maxPackageSize = 4 << 30
)

// searchParameters contains the search parameters that the site adds.
type searchParameters struct {
	set    searchparam.Set
	logger *slog.Logger
}

// newSearchParameters reads the search parameters that the site adds. A parameter that cannot be evaluated is an error. In a
// package, which is not specific to this gateway, such a parameter is skipped with a warning.
func newSearchParameters(patterns []string, logger *slog.Logger) (searchparam.Set, error) {
	p := searchParameters{logger: logger}
	for _, pattern := range patterns {
		files, err := filepath.Glob(pattern)
		if err == nil && len(files) == 0 {
			err = fs.ErrNotExist
		}
		for i := 0; err == nil && i < len(files); i++ {
			err = p.addFile(files[i])
		}
		if err != nil {
			return p.set, fmt.Errorf("search_parameters %s: %w", pattern, err)
		}
	}
	return p.set, nil
}

// addFile adds the search parameters in a file: a resource, a Bundle, or a FHIR package.
func (p *searchParameters) addFile(name string) (err error) {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	switch filepath.Ext(name) {
	case ".tgz":
		return p.addPackage(f)
	case ".json":
		return p.addResources(f, func(err error) error { return err })
	}
	return errors.New("unsupported file extension: use .json or .tgz")
}

// addPackage adds the search parameters in a FHIR package. Only the resources in its folder "package" are read.
func (p *searchParameters) addPackage(src io.Reader) error {
	unzipped, err := gzip.NewReader(src)
	if err != nil {
		return err
	}
	archive := tar.NewReader(io.LimitReader(unzipped, maxPackageSize))
	leaveOut := func(err error) error {
		p.logger.Warn("search parameter of package skipped; bound scopes cannot use it", "error", err)
		return nil
	}
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		isResource := path.Dir(path.Clean(header.Name)) == "package" && path.Ext(header.Name) == ".json"
		if header.Typeflag != tar.TypeReg || !isResource || header.Size > maxParameterFileSize {
			continue
		}
		if err := p.addResources(archive, leaveOut); err != nil {
			return fmt.Errorf("%s: %w", header.Name, err)
		}
	}
}

// addResources adds a SearchParameter, or those in a Bundle. It skips parameters that R4 defines.
func (p *searchParameters) addResources(src io.Reader, onInvalid func(error) error) error {
	text, err := io.ReadAll(io.LimitReader(src, maxParameterFileSize+1))
	if err == nil && len(text) > maxParameterFileSize {
		err = fmt.Errorf("file exceeds %d bytes", maxParameterFileSize)
	}
	if err != nil {
		return err
	}
	return p.addResource(text, onInvalid)
}

// addResource adds the search parameters in a JSON text. If a definition is invalid, it calls onInvalid and returns its error.
func (p *searchParameters) addResource(text []byte, onInvalid func(error) error) error {
	var kind struct{ ResourceType string }
	if err := json.Unmarshal(text, &kind); err != nil {
		return err
	}
	switch kind.ResourceType {
	case "SearchParameter":
		var d searchparam.Definition
		err := json.Unmarshal(text, &d)
		if err == nil {
			err = p.set.Add(d)
		}
		if err != nil && !errors.Is(err, searchparam.ErrStandardParameter) {
			return onInvalid(fmt.Errorf("%s: %w", d.URL, err))
		}
	case "Bundle":
		var bundle struct {
			Entry []struct{ Resource json.RawMessage }
		}
		if err := json.Unmarshal(text, &bundle); err != nil {
			return err
		}
		for _, entry := range bundle.Entry {
			if err := p.addResource(entry.Resource, onInvalid); err != nil {
				return err
			}
		}
	}
	return nil
}

// activeBearers contains the handlers. The metrics report their memory.
var activeBearers sync.Map

var (
	memoryUsed  = prometheus.NewDesc("caddy_fhir_bearer_memory_bytes", "Memory in use for checking requests and responses, for the fhir_bearer closest to its max_memory.", nil, nil)
	memoryLimit = prometheus.NewDesc("caddy_fhir_bearer_max_memory_bytes", "The max_memory of that fhir_bearer.", nil, nil)

	memoryMetrics = metrics.Add(metrics.Collector{Descs: []*prometheus.Desc{memoryUsed, memoryLimit}, Read: collectMemory})
)

// collectMemory reports the memory usage of the handler that is closest to its limit.
func collectMemory(to chan<- prometheus.Metric) {
	var used, limit int64
	activeBearers.Range(func(handler, _ any) bool {
		memory := handler.(*Bearer).gate.enforcement.enforcer.Memory
		if inUse, size := memory.InUse(), memory.Size(); limit == 0 || float64(inUse)/float64(size) > float64(used)/float64(limit) {
			used, limit = inUse, size
		}
		return true
	})
	if limit > 0 {
		to <- prometheus.MustNewConstMetric(memoryUsed, prometheus.GaugeValue, float64(used))
		to <- prometheus.MustNewConstMetric(memoryLimit, prometheus.GaugeValue, float64(limit))
	}
}
