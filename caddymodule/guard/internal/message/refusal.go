package message

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/access"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/rule"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
)

// The causes of a refusal, for logs and tests.
var (
	// ErrScope: no scope allows the interaction.
	ErrScope = errors.New("no scope allows this")
	// ErrOracle: the request could tell more than its scopes allow.
	ErrOracle = errors.New("could tell more than the scopes allow")
	// ErrOutside: the resource is not one that the scopes are about, or is not there.
	ErrOutside = errors.New("not there, or not covered by the scopes")
	// ErrRule: a rule of the site denies it.
	ErrRule = errors.New("denied by a rule")
	// ErrCostly: the request would cost too much.
	ErrCostly = errors.New("too costly")
	// ErrBusy: other requests take the memory that it would need.
	ErrBusy = errors.New("too much is held")
)

// Forbidden refuses what no scope allows (RFC 6750 §3.1), or what could tell more than they do.
func Forbidden(cause error, format string, args ...any) *guard.Error {
	return guard.InsufficientScope(fmt.Sprintf(format, args...), cause)
}

// Denied refuses what a rule of the site denies. No other scope would help.
func Denied(d rule.Decision) *guard.Error {
	refusal := &guard.Error{
		Status: http.StatusForbidden, Description: fmt.Sprintf("The rule %s of this server does not allow this.", d.Rule),
		Err: fmt.Errorf("%w: %s", ErrRule, d.Rule),
	}
	if d.Err != nil {
		refusal.Err = fmt.Errorf("%w: %w", ErrRule, d.Err)
	}
	return refusal
}

// NotFound is the answer for what is not there, and for what is there and not covered: the same in all that shows.
func NotFound() *guard.Error {
	return &guard.Error{Status: http.StatusNotFound, Description: "There is no such resource, or the access token does not cover it.", Err: ErrOutside}
}

// IsOutside reports whether a refusal is that of a resource that is not there, or not covered.
func IsOutside(err error) bool { return errors.Is(err, ErrOutside) }

// Invalid refuses a request that is malformed, whatever the token.
func Invalid(err error, format string, args ...any) *guard.Error {
	return &guard.Error{Status: http.StatusBadRequest, Description: fmt.Sprintf(format, args...), Err: err}
}

// TooCostly refuses what would take too many requests, or too much memory.
func TooCostly(format string, args ...any) *guard.Error {
	return &guard.Error{Status: http.StatusForbidden, Description: fmt.Sprintf(format, args...), Err: ErrCostly}
}

// Failed passes on that the FHIR server failed. Its words are left out: they may be about any resource.
func Failed(a *Answer) *guard.Error {
	refusal := &guard.Error{Status: a.Status, Description: "The FHIR server could not answer.", Err: fmt.Errorf("the FHIR server answered %d", a.Status)}
	if seconds, err := strconv.Atoi(a.Header.Get("Retry-After")); err == nil {
		refusal.Wait = time.Duration(seconds) * time.Second
	}
	return refusal
}

// Refused says that no scope allows the interaction.
func Refused(rights *access.Rights, i interaction.Interaction) error {
	of := i.Type
	if of == "" || of == smart.AnyType {
		of = "all types"
	}
	refusal := Forbidden(ErrScope, "No scope allows %s of %s: it needs the permission %s.", i.Kind, of, i.Permission())
	if missing := rights.Missing; missing != "" {
		refusal = Forbidden(ErrScope, "%s", missing)
	} else if rights.OnlyWhole(i.Type, i.Permission()) {
		refusal = Forbidden(ErrScope, "Scopes that are bound to a patient do not allow %s of %s.", i.Kind, of)
	}
	return refusal.Lifted(Lacking(rights, i))
}

// maxNamed is how many types of _type a challenge names scopes for.
const maxNamed = 16

// Lacking are the scopes of which each allows an interaction, or a part of it if it searches several types.
func Lacking(rights *access.Rights, i interaction.Interaction) string {
	if of := typesOf(i); len(of) > 0 {
		var all []string
		for _, t := range of[:min(len(of), maxNamed)] {
			all = append(all, strings.Fields(rights.Lacking(t, i.Permission(), false))...)
		}
		return strings.Join(all, " ")
	}
	ofAll := i.Kind == interaction.TypeHistory || i.Kind == interaction.SystemHistory ||
		i.Type == "Patient" && i.Permission()&(smart.Create|smart.Delete) != 0
	return rights.Lacking(i.Type, i.Permission(), ofAll)
}

// typesOf are the types that a search of the system or of a compartment names, each once.
func typesOf(i interaction.Interaction) (types []string) {
	if i.Kind != interaction.SystemSearch && (i.Kind != interaction.CompartmentSearch || i.Type != "" && i.Type != smart.AnyType) {
		return nil
	}
	for _, p := range i.Parameters {
		if p.Name != "_type" {
			continue
		}
		for name := range strings.SplitSeq(p.Value, ",") {
			if interaction.IsType(name) && !slices.Contains(types, name) {
				types = append(types, name)
			}
		}
	}
	return types
}

// Beyond refuses what only scopes to read and search everything allow.
func Beyond(rights *access.Rights, cause error, format string, args ...any) *guard.Error {
	return Forbidden(cause, format, args...).Lifted(rights.Lacking(smart.AnyType, ReadSearch, true))
}

// ErrSearch says that a search is not one that FHIR has.
var ErrSearch = errors.New("invalid search")

// ErrBody says that a body is not what the request needs.
var ErrBody = errors.New("body cannot be judged")

// ReadSearch is what it takes to see all resources of a type.
const ReadSearch = smart.Read | smart.Search

// CheckNames refuses parameters that are not on a list.
func CheckNames(operation string, parameters []smart.Parameter, allowed []string) error {
	for _, p := range parameters {
		if !slices.Contains(allowed, p.Name) {
			return Forbidden(ErrOracle, "The parameter %s of %s is not allowed here.", strconv.Quote(p.Name), operation)
		}
	}
	return nil
}
