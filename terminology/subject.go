package terminology

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// subject finds the value set that a request is about, in the library or among what the request brings
// along, and the library in which it is to be expanded.
func (h *Handler) subject(p *parameters) (*Library, *valueSet, error) {
	l, err := h.library(p)
	if err != nil {
		return nil, nil, err
	}
	if err := checkDate(p.date); err != nil {
		return nil, nil, err
	}
	switch {
	case p.id != "":
		return l.byInstance(p)
	case p.valueSet != nil:
		vs, err := l.inline(p.valueSet)
		return l, vs, err
	case p.url != "":
		return l.byURL(p)
	case p.context != "":
		return l.byContext(p)
	}
	return nil, nil, badRequest("required", "the parameter url is required: the canonical of the value set to expand (or else valueSet, or context)")
}

// library returns the library, with what the request brings along. Where it brings nothing, that is the
// library itself.
func (h *Handler) library(p *parameters) (*Library, error) {
	if len(p.resources) == 0 && p.valueSet == nil && !p.cached {
		return p.library, nil
	}
	if err := p.budget.read(len(p.valueSet) + sizeOf(p.resources)); err != nil {
		return nil, err
	}
	if limit := cmp.Or(h.MaxResources, defaultMaxResources); len(p.resources) > limit {
		return nil, &Error{Status: http.StatusRequestEntityTooLarge, Code: "too-costly", Text: fmt.Sprintf("there may be at most %d tx-resource parameters", limit)}
	}
	limit := cmp.Or(h.MaxRemembered, defaultMaxRemembered)
	if !p.cached || limit < 0 {
		return p.library.with(p.resources)
	}
	l, err := h.remembered.library(p.library, p.cacheKey, p.resources, limit, p.budget)
	if err == nil && p.valueSet != nil {
		return l.overlay(), nil // to which the value set can be added, for this request alone
	}
	return l, err
}

// byInstance finds a value set by its id. A url beside it, which nobody needs there, must be its own.
func (l *Library) byInstance(p *parameters) (*Library, *valueSet, error) {
	vs, ok := l.valueSetByID(p.id)
	if !ok {
		e := issue(http.StatusNotFound, "not-found", "not-found", "", "there is no value set with the id "+p.id)
		e.Err, e.Missing = ErrUnknown, []Missing{{Kind: "ValueSet", ID: p.id}}
		return nil, nil, e
	}
	if p.url != "" && !vs.isNamed(p.url) {
		return nil, nil, badRequest("invalid", "the value set with the id %s is %s, not %s", p.id, vs.canonical(), p.url)
	}
	return l, vs, nil
}

// byURL finds a value set by its url, in the version that is asked for.
func (l *Library) byURL(p *parameters) (*Library, *valueSet, error) {
	reference := p.url
	if url, version := splitCanonical(p.url); p.version != "" {
		if version != "" && version != p.version {
			return nil, nil, badRequest("invalid", "url has version %s, but valueSetVersion is %s", version, p.version)
		}
		reference = canonical(url, p.version)
	} else if version == "" {
		if version, _ := versionFor(p.rules.valueSets, url); version != "" {
			reference = canonical(url, version)
		}
	}
	if vs, ok := l.anyValueSet(reference, p.date); ok {
		return l, vs, nil
	}
	text := fmt.Sprintf("A definition for the value Set '%s' could not be found", reference)
	if _, ok := l.valueSet(reference); ok {
		return nil, nil, notAsOf("value set", reference, p.date)
	}
	e := issue(http.StatusNotFound, "not-found", "not-found", "Unable_to_resolve_value_Set_", text)
	e.Err, e.Missing = ErrUnknown, missing("ValueSet", reference, "")
	return nil, nil, e
}

// byContext finds the value set that an element of a profile is bound to.
func (l *Library) byContext(p *parameters) (*Library, *valueSet, error) {
	reference, ok := l.boundTo(p.context)
	if !ok {
		e := issue(http.StatusNotFound, "not-found", "not-found", "", fmt.Sprintf("no value set is known for the context %s", p.context))
		e.Err = ErrUnknown
		return nil, nil, e
	}
	bound := *p
	bound.url = reference
	return l.byURL(&bound)
}

// errDate is wrapped in the error for a date that is none.
var errDate = errors.New("not a date of FHIR")

// checkDate checks the parameter date.
func checkDate(date string) error {
	if date == "" {
		return nil
	}
	for _, layout := range []string{"2006", "2006-01", "2006-01-02", time.RFC3339} {
		if _, err := time.Parse(layout, date); err == nil {
			return nil
		}
	}
	return &Error{Status: http.StatusBadRequest, Code: "invalid", Err: errDate, Text: "the parameter date must be a date, like 2026-01-31"}
}

// notAsOf is the error for a definition of which only versions after a date are here.
func notAsOf(kind, reference, date string) error {
	return &Error{
		Status: http.StatusUnprocessableEntity, Code: "not-supported", Err: ErrUnsupported,
		Text: fmt.Sprintf("%s %s is not here as it was on %s", kind, reference, date),
	}
}

// has reports whether a parameter was given.
func (p *parameters) has(name string) bool {
	for i := range p.given {
		if p.given[i].name == name {
			return true
		}
	}
	return false
}
