package bearer

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/enforce"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/rule"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/option"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/scopeoption"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/sharedkey"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
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

	// The memory in bytes for all bodies and answers that are checked at the same time; each of their bytes counts twice.
	// A client gets at most half of it, and a person a quarter, unless a single request needs more.
	// Requests that wait longer than 10 s for it get 503. An answer may have a sixteenth of it, and at least 16 MiB; larger
	// ones are withheld. At least 64 MiB. Default: 256 MiB.
	MaxMemory int64 `json:"max_memory,omitempty"`

	// Seal links to pages and jobs with the first of these, so that they work at all gateways that are given it: base64 of
	// at least 32 random bytes. Those after it are previous ones, whose links still work. For gateways without the fhir app,
	// whose keys seal them. Placeholders are supported. Default: a key of this process.
	SealKeys []string `json:"seal_keys,omitempty"`

	// Record reads and searches that were allowed in the audit trail too. Default: refusals, and what may change something.
	AuditReads bool `json:"audit_reads,omitempty"`
}

// newEnforcement returns the configured enforcement of scopes, or nil with scopes off.
func newEnforcement(ctx caddy.Context, o *Enforcement, policies []rule.Policy, at address, app App, record func(*http.Request, enforce.Bearer, enforce.Decision)) (*enforcement, error) {
	if o.ScopesOff && len(policies)+len(o.Operations)+len(o.Shared)+len(o.ExpandScopes)+len(o.SearchParameterFiles) > 0 {
		return nil, errScopesOff
	}
	if o.ScopesOff {
		return nil, nil
	}
	own, err := ownShared(o.Shared)
	if err != nil {
		return nil, err
	}
	operations, err := ownOperations(o.Operations)
	if err != nil {
		return nil, err
	}
	e := &enforce.Enforcer{
		Base: at.path, BaseURL: at.url, Shared: enforce.NewShared(own), CompartmentSearch: o.CompartmentSearch,
		Operations: enforce.NewOperations(operations...), ExpandScopes: o.ExpandScopes, Upsert: o.Upsert, Policies: policies,
		Limits: enforce.Limits{Answer: enforce.AnswerOf(o.MaxMemory)}, Judging: judging,
		Decided: tracing(record), Logger: ctx.Slogger(),
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

var errScopesOff = errors.New("scopes off leaves allow, deny, operation, shared, search_parameters and expand_scope without effect: remove it, or them")

// ownOperations are the operations that are set here.
func ownOperations(configured [][]string) (operations []enforce.Operation, err error) {
	operations = make([]enforce.Operation, len(configured))
	for i, words := range configured {
		if operations[i], err = enforce.ParseOperation(words...); err != nil {
			return nil, fmt.Errorf("operation: %w", err)
		}
	}
	return operations, nil
}

// subdirectives are the words of a Caddyfile for it.
func (e *Enforcement) subdirectives() option.Block {
	return option.Block{
		"scopes":             option.Only("off", &e.ScopesOff),
		"compartment_search": option.Bareword(&e.CompartmentSearch),
		"shared":             parseShared(&e.Shared),
		"operation":          parseOperation(&e.Operations),
		"search_parameters":  option.Words(&e.SearchParameterFiles, nil),
		"expand_scope":       scopeoption.Words(&e.ExpandScopes, smart.CheckScope),
		"upsert":             option.Bareword(&e.Upsert),
		"max_memory":         option.Size(&e.MaxMemory),
		"seal_key":           sharedkey.Words("seal_key", &e.SealKeys),
		"audit_reads":        option.Bareword(&e.AuditReads),
	}
}

// parseShared reads a rule for types.
func parseShared(to *map[string]string) option.Setter {
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
			if err := checkShared(resourceType, rule); err != nil {
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

// ownShared are the rules for types that are set here.
func ownShared(configured map[string]string) (enforce.Shared, error) {
	own := enforce.Shared{}
	for resourceType, rule := range configured {
		if err := checkShared(resourceType, rule); err != nil {
			return nil, err
		}
		own[resourceType] = enforce.SharedRule(rule)
	}
	return own, nil
}

// checkShared checks a rule for a type.
func checkShared(resourceType, rule string) error {
	if !interaction.IsType(resourceType) {
		return fmt.Errorf("%q is no resource type of FHIR R4", resourceType)
	}
	switch r := enforce.SharedRule(rule); {
	case r == nil:
		return fmt.Errorf("%s: %q is no rule: use one of %v", resourceType, rule, enforce.SharedRules())
	case !r.Fits(resourceType):
		return fmt.Errorf("%s cannot have the rule %s: in FHIR R4 the type has no search parameter by which that rule goes", resourceType, rule)
	}
	return nil
}

// parseOperation reads an operation, whose words [enforce.ParseOperation] knows.
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
