package bearer

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/access"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/enforce"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/operation"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/server"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/fhirapp"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/option"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
)

// Enforcement is how fhir_bearer holds requests and answers to the scopes of their tokens.
type Enforcement struct {
	// Let every valid token do everything, because the FHIR server enforces scopes itself. Default: scopes are enforced.
	ScopesOff bool `json:"scopes_off,omitempty"`

	// The FHIR server finds a patient's resources by `Patient/<id>/<type>` (FHIR R4 §3.1.1.4), which saves searches:
	// one instead of one for each membership parameter. HAPI FHIR does not. Default: off.
	CompartmentSearch bool `json:"compartment_search,omitempty"`

	// Rules for types outside the patient compartment, or for which it says too much, by type: `everyone`, `unassigned`,
	// `security_context`, `about`, `alone`, `patient` or `closed`. Default: docs/guard.md has the table.
	Shared map[string]string `json:"shared,omitempty"`

	// Operations that may be called besides the default ones, or that differ from them, each as its words: `$name`, `patient`, `instance`,
	// `whole`, `token` or `off`, permissions such as `rs`, types. Default: docs/guard.md has the list.
	Operations [][]string `json:"operations,omitempty"`

	// Search parameters beyond those of FHIR R4, from files of SearchParameter resources, as paths or patterns: `.json` with one or a
	// Bundle, `.tgz` for a FHIR package. They are read when the configuration loads. Default: none.
	SearchParameterFiles []string `json:"search_parameter_files,omitempty"`

	// The scopes of which a token must have one for operations on terminology, such as `$expand`, and to read and search
	// definitions. Default: any valid token will do.
	ExpandScopes []string `json:"expand_scopes,omitempty"`

	// Let an update under scopes that are bound to a patient or a constraint create what does not exist. This reveals which
	// ids are taken. Default: 404.
	Upsert bool `json:"upsert,omitempty"`

	// The site's own rules, on top of what scopes say. Default: none.
	Policies []AccessPolicy `json:"policies,omitempty"`

	// The memory in bytes for all bodies and answers that are checked at the same time; each of their bytes counts twice.
	// Requests that wait longer than 10 s for it get 503. An answer may have a sixteenth of it, and at least 16 MiB; larger
	// ones are withheld. At least 64 MiB. Default: 256 MiB.
	MaxMemory int64 `json:"max_memory,omitempty"`

	// Seal links to pages and jobs with the first of these, so that they work at all gateways that are given it: base64 of
	// at least 32 random bytes. Those after it are previous ones, whose links still work. For gateways without the fhir app,
	// whose keys seal them. Placeholders are supported. Default: a key of this process.
	SealKeys []string `json:"seal_keys,omitempty"`

	// Record reads and searches that were allowed in the audit trail too. Default: refusals, and what may change something.
	AuditReads bool `json:"audit_reads,omitempty"`

	// Tell the next handler in the header `X-Guard-Decision` what was decided and why. Default: off.
	Debug bool `json:"debug,omitempty"`
}

// enforcement is the [Enforcement] in use.
type enforcement struct {
	*enforce.Enforcer
	events      *audit.Log
	auditsReads bool
}

// holder is what is kept with a token.
type holder struct {
	fhirUser string // as it was then, since it is not the token's alone
	rights   *access.Rights
	binding  string
}

// decisionHeader tells the next handler of decisions. It is removed from clients' requests, as an identity header is.
const decisionHeader = "X-Guard-Decision"

func (h *Bearer) newEnforcement(ctx caddy.Context) (e *enforcement, err error) {
	if h.ScopesOff && len(h.Policies)+len(h.Operations)+len(h.Shared)+len(h.ExpandScopes)+len(h.SearchParameterFiles) > 0 {
		return nil, errScopesOff
	}
	if h.ScopesOff {
		return nil, nil
	}
	own, err := ownShared(h.Shared)
	if err != nil {
		return nil, err
	}
	operations, err := ownOperations(h.Operations)
	if err != nil {
		return nil, err
	}
	e = &enforcement{auditsReads: h.AuditReads, events: fhirapp.NewEventLog(ctx)}
	e.Enforcer = &enforce.Enforcer{
		Base: h.FHIRBase, Shared: access.NewShared(own), CompartmentSearch: h.CompartmentSearch,
		Operations: operation.NewOperations(operations...), ExpandScopes: h.ExpandScopes, Upsert: h.Upsert,
		Limits: server.Limits{Answer: server.AnswerOf(h.MaxMemory)}, Decided: e.recordAccess,
	}
	if h.origin != "" {
		e.BaseURL = h.origin + h.FHIRBase
	}
	if h.app != nil {
		e.BaseURL, e.events = h.apiURL, h.app.Events()
	}
	if e.Parameters, err = h.newSearchParameters(h.logger); err != nil {
		return nil, err
	}
	if e.Sealing, err = h.sealing(); err != nil {
		return nil, err
	}
	if e.Policies, err = h.newPolicies(h.logger); err != nil {
		return nil, err
	}
	if e.Memory, err = server.NewMemory(h.MaxMemory, e.Limits); err != nil {
		return nil, err
	}
	if h.Debug {
		e.DecisionHeader = decisionHeader
	}
	return e, nil
}

var errScopesOff = errors.New("scopes off leaves allow, deny, operation, shared, search_parameters and expand_scope without effect: remove it, or them")

// ownOperations are the operations that are set here.
func ownOperations(configured [][]string) (operations []operation.Operation, err error) {
	operations = make([]operation.Operation, len(configured))
	for i, words := range configured {
		if operations[i], err = operation.ParseOperation(words...); err != nil {
			return nil, fmt.Errorf("operation: %w", err)
		}
	}
	return operations, nil
}

// serve has the token's requests answered as far as its scopes allow.
func (e *enforcement) serve(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler, t *guard.Token) error {
	of, err := e.holderOf(r, next, t)
	if err != nil {
		return err
	}
	return e.Serve(w, r, next, enforce.Bearer{Rights: of.rights, Binding: of.binding, Token: t})
}

// holderOf is who holds a token. It is kept, because parsing scopes costs more than all the rest of a request that
// passes. The rights of a RelatedPerson depend on a record, and so do those of who acts for the patient of the token.
func (e *enforcement) holderOf(r *http.Request, next caddyhttp.Handler, t *guard.Token) (*holder, error) {
	if known, ok := t.Memo.Load().(*holder); ok && known.fhirUser == t.FHIRUser {
		return known, nil
	}
	rights, lasting, err := e.rightsOf(r, next, t)
	if err != nil {
		return nil, err
	}
	of := &holder{t.FHIRUser, rights, bindingOf(t)}
	if lasting {
		t.Memo.Store(of)
	}
	return of, nil
}

// bindingOf is what a sealed link is bound to: a token of another kind has other text here.
func bindingOf(t *guard.Token) string {
	return strings.Join([]string{"fhir", t.Issuer, t.Subject, t.ClientID, t.Patient, t.FHIRUser, t.Scope}, "\x00")
}

// rightsOf are what the token may do; lasting says that they depend on no record.
func (e *enforcement) rightsOf(r *http.Request, next caddyhttp.Handler, t *guard.Token) (rights *access.Rights, lasting bool, err error) {
	holder := access.Holder{Scope: t.Scope, Patient: t.Patient, User: e.userOf(t.FHIRUser), Parameters: e.Parameters}
	lasting = !t.Related && holder.User.Type != "RelatedPerson"
	if holder.User.Type == "Patient" {
		holder.UserPatient = holder.User.ID
	}
	if !lasting {
		if err = e.relate(r, next, t, &holder); err != nil {
			return nil, false, err
		}
	}
	rights = access.New(holder, e.Shared)
	if len(e.ExpandScopes) == 0 || rights.HasOne(e.ExpandScopes) {
		rights.Add(access.Terminology()...)
	}
	return rights, lasting, nil
}

// relate finds for whom the holder acts now, and takes the patient of the token from who acts for them no longer.
func (e *enforcement) relate(r *http.Request, next caddyhttp.Handler, t *guard.Token, holder *access.Holder) error {
	var patients []string
	if holder.User.Type == "RelatedPerson" || holder.User.Type == "Person" {
		var err error
		if patients, err = e.RelatedPatients(r, next, holder.User); err != nil {
			return err
		}
	}
	if holder.User.Type == "RelatedPerson" && len(patients) > 0 {
		holder.UserPatient = patients[0]
	}
	if t.Related && !slices.Contains(patients, t.Patient) {
		holder.Patient, holder.Ended = "", true
	}
	return nil
}

// userOf is the resource that fhirUser names on this server. One of another server's is a person without records
// here, but a practitioner in any case.
func (e *enforcement) userOf(fhirUser string) interaction.Reference {
	local := strings.TrimPrefix(fhirUser, e.BaseURL+"/")
	resourceType, id, ok := strings.Cut(local, "/")
	if ok && interaction.IsType(resourceType) && !strings.Contains(id, "/") {
		return interaction.Reference{Type: resourceType, ID: id}
	}
	parts := strings.Split(fhirUser, "/")
	if n := len(parts); n >= 2 && strings.HasPrefix(parts[n-2], "Practitioner") {
		return interaction.Reference{Type: parts[n-2]}
	}
	return interaction.Reference{}
}

// parseEnforcement are the words of a Caddyfile for it.
func (e *Enforcement) parseEnforcement() option.Block {
	return option.Block{
		"scopes":             option.Only("off", &e.ScopesOff),
		"compartment_search": option.Bareword(&e.CompartmentSearch),
		"shared":             e.parseShared,
		"operation":          e.parseOperation,
		"search_parameters":  option.Words(&e.SearchParameterFiles, nil),
		"expand_scope":       option.Scopes(&e.ExpandScopes, client.CheckScope),
		"upsert":             option.Bareword(&e.Upsert),
		"allow":              e.parsePolicy,
		"deny":               e.parsePolicy,
		"max_memory":         option.Size(&e.MaxMemory),
		"seal_key":           option.Words(&e.SealKeys, option.Literal(option.CheckSharedKey("seal_key"))),
		"audit_reads":        option.Bareword(&e.AuditReads),
		"debug":              option.Bareword(&e.Debug),
	}
}

func (e *Enforcement) parseShared(d *caddyfile.Dispenser) error {
	args := d.RemainingArgs()
	if len(args) < 2 {
		return d.ArgErr()
	}
	rule := args[len(args)-1]
	for _, resourceType := range args[:len(args)-1] {
		if err := checkShared(resourceType, rule); err != nil {
			return d.WrapErr(err)
		}
		if e.Shared[resourceType] != "" {
			return d.Errf("duplicate rule for %s", resourceType)
		}
		if e.Shared == nil {
			e.Shared = map[string]string{}
		}
		e.Shared[resourceType] = rule
	}
	return nil
}

func (e *Enforcement) parseOperation(d *caddyfile.Dispenser) error {
	args := d.RemainingArgs()
	if _, err := operation.ParseOperation(args...); err != nil {
		return d.WrapErr(fmt.Errorf("operation: %w", err))
	}
	e.Operations = append(e.Operations, args)
	return nil
}
