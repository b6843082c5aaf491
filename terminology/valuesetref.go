package terminology

import (
	"errors"
	"fmt"
	"net/http"
	"time"
)

// valueSetFor finds the value set of an operation, and the library to expand it in: an overlay if the value set came
// with the request.
func valueSetFor(l *Set, ref *ValueSetRef, rules *Rules, b *budget) (_ *Set, vs *valueSet, err error) {
	if ref.ValueSet != nil {
		if err := b.read(len(ref.ValueSet)); err != nil {
			return nil, nil, err
		}
		l = l.overlay()
	}
	if err := checkDate(rules.Date); err != nil {
		return nil, nil, err
	}
	switch {
	case ref.ID != "":
		vs, err = byInstance(l, ref)
	case ref.ValueSet != nil:
		vs, err = l.inline(ref.ValueSet)
	case ref.URL != "":
		vs, err = byURL(l, ref, rules)
	case ref.Context != "":
		vs, err = byContext(l, ref, rules)
	default:
		err = badRequest("required", "the parameter url is required: the canonical of the value set to expand (or else valueSet, or context)")
	}
	return l, vs, err
}

// byInstance finds a value set by its id. A url beside the id must match.
func byInstance(d *Set, ref *ValueSetRef) (*valueSet, error) {
	vs, ok := d.valueSetByID(ref.ID)
	if !ok {
		return nil, unknown("", "there is no value set with the id "+ref.ID, Missing{Kind: "ValueSet", ID: ref.ID})
	}
	if ref.URL != "" && !vs.isNamed(ref.URL) {
		return nil, badRequest("invalid", "the value set with the id %s is %s, not %s", ref.ID, vs.canonical(), ref.URL)
	}
	return vs, nil
}

// byURL finds a value set by its url, in the version asked for.
func byURL(d *Set, ref *ValueSetRef, rules *Rules) (*valueSet, error) {
	reference := ref.URL
	if url, version := splitCanonical(ref.URL); ref.Version != "" {
		if version != "" && version != ref.Version {
			return nil, badRequest("invalid", "url has version %s, but valueSetVersion is %s", version, ref.Version)
		}
		reference = canonical(url, ref.Version)
	} else if version == "" {
		if version, _ := versionFor(rules.Versions.ValueSets, url); version != "" {
			reference = canonical(url, version)
		}
	}
	if vs, ok := d.anyValueSet(reference, rules.Date); ok {
		return vs, nil
	}
	if _, ok := d.valueSet(reference); ok {
		return nil, notAsOf("value set", reference, rules.Date)
	}
	text := fmt.Sprintf("A definition for the value Set '%s' could not be found", reference)
	return nil, unknown("Unable_to_resolve_value_Set_", text, missing("ValueSet", reference, "")...)
}

// unknown is the error for a definition that is not here.
func unknown(messageID, text string, missing ...Missing) *Error {
	e := issue(http.StatusNotFound, "not-found", "not-found", messageID, text)
	e.Err, e.Missing = ErrUnknown, missing
	return e
}

// byContext finds the value set bound to an element of a profile.
func byContext(d *Set, ref *ValueSetRef, rules *Rules) (*valueSet, error) {
	reference, ok := d.boundTo(ref.Context)
	if !ok {
		return nil, unknown("", "no value set is known for the context "+ref.Context)
	}
	return byURL(d, &ValueSetRef{URL: reference, Version: ref.Version}, rules)
}

var errDate = errors.New("not a date of FHIR")

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

// notAsOf is the error for a definition that is here only in versions after a date.
func notAsOf(kind, reference, date string) error {
	return &Error{
		Status: http.StatusUnprocessableEntity, Code: "not-supported", Err: ErrUnsupported,
		Text: fmt.Sprintf("%s %s is not here as it was on %s", kind, reference, date),
	}
}
