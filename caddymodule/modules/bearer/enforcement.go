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

// Enforcement configures how fhir_bearer restricts requests and responses to the scopes of their tokens.
type Enforcement struct {
	// Give every valid token full access, because the FHIR server enforces scopes itself. Default: scopes are enforced.
	ScopesOff bool `json:"scopes_off,omitempty"`

	// The FHIR server supports searches by `Patient/<id>/<type>` (FHIR R4 §3.1.1.4), which replace one search per membership
	// parameter by a single one. HAPI FHIR does not. Default: off.
	CompartmentSearch bool `json:"compartment_search,omitempty"`

	// Rules by type for types that the patient compartment does not contain or covers too broadly: `everyone`, `unassigned`,
	// `security_context`, `about`, `alone`, `patient` or `closed`. Default: the table in docs/reference/resources.md.
	SharedTypes map[string]string `json:"shared,omitempty"`

	// Permitted operations that extend or replace the default ones, each as a list of words: `$name`, `patient`, `instance`,
	// `whole`, `token` or `off`, permissions such as `rs`, types. Default: the list in docs/reference/fhir_bearer.md.
	Operations [][]string `json:"operations,omitempty"`

	// Files with SearchParameter resources in addition to FHIR R4's, as paths or patterns: `.json` with a resource or a Bundle,
	// `.tgz` for a FHIR package. They are read when the configuration loads. Default: none.
	SearchParameterFiles []string `json:"search_parameter_files,omitempty"`

	// Alternative scopes for terminology operations, such as `$expand`, and for reading and searching definitions: a token
	// needs one of them. Default: any valid token suffices.
	ExpandScopes []string `json:"expand_scopes,omitempty"`

	// Permit an update under scopes with a patient or a constraint to create a missing resource. This reveals which ids exist.
	// Default: 404.
	Upsert bool `json:"upsert,omitempty"`

	// The memory in bytes for all bodies and responses that are checked concurrently; each byte counts twice. A client gets at
	// most half of it, and a person a quarter, unless a single request needs more. Requests that wait longer than 10 s for
	// memory get 503. The size limit of a response is a sixteenth of it, and at least 16 MiB; larger responses are withheld. At
	// least 64 MiB. Default: 256 MiB.
	MaxMemory int64 `json:"max_memory,omitempty"`

	// Keys that seal links to pages and jobs, so that they work at all gateways with the same keys: base64 of at least 32
	// random bytes. The first key seals; links sealed with the other keys still work. Only for gateways without the fhir app,
	// which has its own keys to seal links. Placeholders are supported. Default: a key of this process.
	SealKeys []string `json:"seal_keys,omitempty"`

	// Also record permitted reads and searches in the audit log. Default: rejections, and requests that may change data.
	AuditReads bool `json:"audit_reads,omitempty"`
}

// newEnforcement returns the configured enforcement of scopes, or nil with scopes off.
func newEnforcement(ctx caddy.Context, o *Enforcement, policies []rule.Policy, at apiLocation, app App, record func(*http.Request, enforce.Bearer, enforce.Decision)) (*enforcement, error) {
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
	return &enforcement{e}, nil
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

// subdirectives returns the Caddyfile subdirectives of the options.
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

// parseSharedTypes parses a rule for types.
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

// newSharedRules returns the configured rules by type.
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

// parseOperation parses an operation in the syntax of [enforce.ParseOperation].
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

// enforcement restricts requests to the scopes of their tokens.
type enforcement struct{ enforcer *enforce.Enforcer }

// cachedHolder is the cached value of a token's Memo.
type cachedHolder struct {
	fhirUser string // value when cached; the token's can change
	rights   *enforce.Rights
	binding  string
}

// serve answers a token's request within its scopes.
func (e *enforcement) serve(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler, t *guard.Token) error {
	of, err := e.loadHolder(r, next, t)
	if err != nil {
		return err
	}
	return e.enforcer.Serve(w, r, next, enforce.Bearer{Rights: of.rights, Binding: of.binding, Token: t})
}

// loadHolder returns the holder of a token, cached because parsing scopes is the most expensive step of a request that passes.
// Rights that depend on a relationship on the FHIR server, such as a RelatedPerson's, are not cached.
func (e *enforcement) loadHolder(r *http.Request, next caddyhttp.Handler, t *guard.Token) (*cachedHolder, error) {
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

// linkBinding returns the binding of a sealed link to a token's issuer, subject, client, patient, user and scopes.
func linkBinding(t *guard.Token) string {
	return strings.Join([]string{"fhir", t.Issuer, t.Subject, t.ClientID, t.Patient, t.FHIRUser, t.Scope}, "\x00")
}

// bindingClient returns the part of a binding that identifies the client and the person, independently of scopes.
func bindingClient(binding string) string {
	return strings.Join(strings.SplitN(binding, "\x00", 5)[:4], "\x00")
}

// computeRights returns the permissions of a token; cacheable reports whether they are independent of records on the FHIR server.
func (e *enforcement) computeRights(r *http.Request, next caddyhttp.Handler, t *guard.Token) (rights *enforce.Rights, cacheable bool, err error) {
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

// resolvePatients looks up the patients for whom the holder currently acts, and removes the token's patient if it is not among
// them.
func (e *enforcement) resolvePatients(r *http.Request, next caddyhttp.Handler, t *guard.Token, holder *enforce.Holder) error {
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

// userReference returns the resource in fhirUser if it is on this server. For a Practitioner or PractitionerRole of another
// server, it returns only the type; for any other resource, the zero value.
func (e *enforcement) userReference(fhirUser string) interaction.Reference {
	reference := strings.TrimPrefix(fhirUser, e.enforcer.BaseURL+"/")
	resourceType, id, ok := strings.Cut(reference, "/")
	if ok && interaction.IsType(resourceType) && !strings.Contains(id, "/") {
		return interaction.Reference{Type: resourceType, ID: id}
	}
	parts := strings.Split(fhirUser, "/")
	if n := len(parts); n >= 2 && strings.HasPrefix(parts[n-2], "Practitioner") {
		return interaction.Reference{Type: parts[n-2]}
	}
	return interaction.Reference{}
}

const (
	// maxParameterFileSize is the maximum size in bytes of a file of SearchParameter resources. Larger files in a package contain
	// something else, and are skipped.
	maxParameterFileSize = 16 << 20
	// maxPackageSize is the maximum size in bytes of an unpacked package.
	maxPackageSize = 4 << 30
)

// searchParameters are the site's own search parameters.
type searchParameters struct {
	set    searchparam.Set
	logger *slog.Logger
}

// newSearchParameters reads the site's own search parameters. A parameter that cannot be evaluated is an error; in a package,
// which is not specific to this gateway, it is skipped with a warning.
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

// addFile adds the parameters of a file: a resource, a Bundle, or a FHIR package.
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

// addPackage adds the parameters of a FHIR package. Its resources are in the folder package.
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

// addResources adds a SearchParameter, or those of a Bundle. Parameters that R4 defines are skipped.
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

// addResource adds the parameters of a text. onInvalid handles an invalid definition; its error is returned.
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

// activeBearers are the handlers that the memory metrics cover.
var activeBearers sync.Map

var (
	memoryUsed  = prometheus.NewDesc("caddy_fhir_bearer_memory_bytes", "Memory in use for checking requests and responses, for the fhir_bearer closest to its max_memory.", nil, nil)
	memoryLimit = prometheus.NewDesc("caddy_fhir_bearer_max_memory_bytes", "The max_memory of that fhir_bearer.", nil, nil)

	memoryMetrics = metrics.Add(metrics.Collector{Descs: []*prometheus.Desc{memoryUsed, memoryLimit}, Read: collectMemory})
)

// collectMemory reports the used memory of the handler that uses the most of its limit.
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
