package launch

import (
	"context"
	"errors"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// others are whose records may have an address of somebody of the other type: a child's has the mother's.
var others = map[string]string{"Patient": "RelatedPerson", "RelatedPerson": "Patient"}

// errAmbiguous says that a search found more than one.
var errAmbiguous = errors.New("more than one record")

// find returns Type/id of the resource. Its error is [ErrNoRecord] if there is none, or [errAmbiguous].
func (q PersonQuery) find(ctx context.Context, records Records, person Person) (string, error) {
	if !isText(q.Value) || strings.TrimSpace(q.Value) == "" {
		return "", ErrNoRecord
	}
	found, err := q.ask(ctx, records, person, q.Type)
	switch {
	case err != nil:
		return "", err
	case len(found) > 1:
		return "", errAmbiguous
	case len(found) == 0 || !found[0].is(q, time.Now()):
		return "", ErrNoRecord
	}
	if other := others[q.Type]; other != "" && q.System == "" {
		all, err := q.ask(ctx, records, person, other)
		switch {
		case err != nil:
			return "", err
		case len(all) > 0 || !found[0].isOwn(q):
			return "", errAmbiguous
		}
	}
	return q.Type + "/" + found[0].ID, nil
}

// ask returns the resources of a type with the identifier or address.
func (q PersonQuery) ask(ctx context.Context, records Records, person Person, resourceType string) ([]personResource, error) {
	query := url.Values{"_count": {"3"}}
	if q.System == "" {
		query.Set("email", escape(q.Value))
	} else {
		query.Set("identifier", escape(q.System)+"|"+escape(q.Value))
	}
	var found bundle[personResource]
	if err := read(ctx, records, person.reader("system/"+resourceType+".rs", "", ""), resourceType, query, &found); err != nil {
		return nil, err
	}
	people, more := found.resources(MaxShown)
	people = slices.DeleteFunc(people, func(p personResource) bool { return p.ResourceType == "OperationOutcome" })
	if more {
		return nil, errAmbiguous
	}
	return people, nil
}

// personResource is what is read of a Practitioner, Patient, RelatedPerson or Person.
type personResource struct {
	ResourceType string       `json:"resourceType"`
	ID           string       `json:"id"`
	Active       *bool        `json:"active"`
	Identifier   []personItem `json:"identifier"`
	Telecom      []personItem `json:"telecom"`
	BirthDate    string       `json:"birthDate"`
	Contact      []struct {
		Telecom []personItem `json:"telecom"`
	} `json:"contact"` // guardians, partners, and others of a Patient
}

// isOwn reports whether nothing says that an address is that of the patient's guardian, or of somebody with another date of
// birth. Dates may lack the day or month.
func (p *personResource) isOwn(q PersonQuery) bool {
	known := min(len(p.BirthDate), len(q.BirthDate))
	if p.BirthDate[:known] != q.BirthDate[:known] && !strings.HasPrefix(q.BirthDate, "0000") { // no year (OpenID Connect Core §5.1)
		return false
	}
	for _, c := range p.Contact {
		if slices.ContainsFunc(c.Telecom, func(t personItem) bool { return isAddress(t.Value, q.Value) }) {
			return false
		}
	}
	return true
}

// personItem is an Identifier or a ContactPoint.
type personItem struct {
	System string `json:"system"`
	Value  string `json:"value"`
	Use    string `json:"use"`
	Period struct {
		End string `json:"end"`
	} `json:"period"`
}

// is reports whether the resource is of the person, whatever the server searched for.
func (p *personResource) is(q PersonQuery, now time.Time) bool {
	if p.ResourceType != q.Type || !IsID(p.ID) || p.Active != nil && !*p.Active {
		return false
	}
	if q.System == "" {
		return slices.ContainsFunc(p.Telecom, func(t personItem) bool {
			return t.isCurrent(now) && t.System == "email" && isAddress(t.Value, q.Value)
		})
	}
	return slices.ContainsFunc(p.Identifier, func(i personItem) bool {
		return i.isCurrent(now) && i.System == q.System && i.Value == q.Value
	})
}

// isCurrent reports whether an item is still the person's: addresses are given to others. An end counts to the last day
// that it names.
func (i *personItem) isCurrent(now time.Time) bool {
	end := i.Period.End[:min(len(i.Period.End), len(time.DateOnly))]
	return i.Use != "old" && (end == "" || end >= now.UTC().Format(time.DateOnly)[:len(end)])
}

// isAddress reports whether two texts are one e-mail address. Letters beyond ASCII must be the same: some fold to those
// of somebody else's address.
func isAddress(a, b string) bool {
	return a == b || len(a+b) == utf8.RuneCountInString(a+b) && strings.EqualFold(a, b)
}
