package launch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/tokenclaim"
)

// PersonSearch configures a search for a person's own resource.
type PersonSearch struct {
	// `Practitioner`, `Patient`, `RelatedPerson` or `Person`. Required.
	Type string `json:"type"`

	// The system of the identifier to search for. Default: search by verified e-mail address.
	System string `json:"system,omitempty"`

	// The provider's claim with the identifier's value, or a path such as `hospital.number`. Required with a system.
	Claim string `json:"claim,omitempty"`
}

// Check returns an error for an invalid search.
func (s PersonSearch) Check() error {
	switch {
	case !slices.Contains([]string{"Practitioner", "Patient", "RelatedPerson", "Person"}, s.Type):
		return fmt.Errorf("fhir_user_search %q: use Practitioner, Patient, RelatedPerson or Person", s.Type)
	case (s.System == "") != (s.Claim == ""):
		return fmt.Errorf("fhir_user_search %s: use identifier <system> <claim>, or email", s.Type)
	}
	return nil
}

// PersonQuery is a search for one person.
type PersonQuery struct {
	PersonSearch

	Value     string `json:"value"`                // identifier value or address
	BirthDate string `json:"birth_date,omitempty"` // if known: compared if the address may belong to another person
}

// String omits the value, which is personal data.
func (q PersonQuery) String() string {
	if q.System == "" {
		return q.Type + " email"
	}
	return q.Type + " identifier " + q.System
}

// FoundPerson is the result of a search.
type FoundPerson struct {
	By        PersonQuery `json:"by"`        // search
	Reference string      `json:"reference"` // Type/id
	At        time.Time   `json:"at"`        // time of the search
}

const (
	lasting  = 24 * time.Hour // cache lifetime of a result
	maxValue = 1 << 10        // maximum length of a value in bytes
)

// Queries returns the searches possible with a person's claims and verified address, if any. birthDate may be empty.
func Queries(searches []PersonSearch, claims map[string]any, address, birthDate string) (asked []PersonQuery) {
	for _, s := range searches {
		values, born := []string{address}, birthDate
		if s.System != "" {
			values, _ = tokenclaim.Read(claims, s.Claim)
			born = ""
		}
		if len(values) == 1 && values[0] != "" && len(values[0]) <= maxValue {
			asked = append(asked, PersonQuery{s, values[0], born})
		}
	}
	return asked
}

// Searcher searches for people at the FHIR server.
type Searcher struct {
	Records Records         // access to the FHIR server; nil if none
	Trail   *audit.Recorder // audit log for results
}

var errNoAnswer = &oauth2.Error{
	Code: "temporarily_unavailable", Description: "the FHIR server does not say who this person is; try again later",
}

// Find returns the result of the first successful search, or nil. A previous result is valid for a day. If the FHIR server
// is unreachable or not configured, the previous result is returned with the error. The logger identifies the person.
func (s Searcher) Find(ctx context.Context, asked []PersonQuery, person Person, before *FoundPerson, now time.Time, logger *slog.Logger) (*FoundPerson, error) {
	switch {
	case before == nil:
	case !slices.Contains(asked, before.By):
		before = nil
	case now.Sub(before.At) < lasting:
		return before, nil
	}
	for _, q := range asked {
		reference, err := q.find(ctx, s.Records, person)
		switch {
		case err == nil:
			s.Trail.Record(ctx, audit.Event{Kind: audit.FHIRUser, User: person.Subject, Reason: reference + " was found by " + q.String()})
			return &FoundPerson{By: q, Reference: reference, At: now.UTC()}, nil
		case errors.Is(err, errAmbiguous):
			logger.WarnContext(ctx, "fhirUser omitted: several records on the FHIR server match the person, or the address belongs to someone else", "search", q.String())
			return nil, nil
		case !errors.Is(err, ErrNoRecord):
			logger.ErrorContext(ctx, "fhirUser search failed", "search", q.String(), "error", err)
			unavailable := *errNoAnswer
			unavailable.Err = err
			return before, &unavailable
		}
	}
	logger.WarnContext(ctx, "fhirUser omitted: no record on the FHIR server matches, or the idp sent no value to search by", "searches", len(asked))
	return nil, nil
}

// others maps a type to the other type that may contain the person's address: a child's record has the mother's address.
var others = map[string]string{"Patient": "RelatedPerson", "RelatedPerson": "Patient"}

// errAmbiguous means that a search matched several resources.
var errAmbiguous = errors.New("more than one record")

// find returns Type/id of the resource. The error is [ErrNoRecord] without a match, or [errAmbiguous].
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
	people, more := found.resources()
	people = slices.DeleteFunc(people, func(p personResource) bool { return p.ResourceType == "OperationOutcome" })
	if more {
		return nil, errAmbiguous
	}
	return people, nil
}

// personResource is the evaluated part of a Practitioner, Patient, RelatedPerson or Person.
type personResource struct {
	ResourceType string       `json:"resourceType"`
	ID           string       `json:"id"`
	Active       *bool        `json:"active"`
	Identifier   []personItem `json:"identifier"`
	Telecom      []personItem `json:"telecom"`
	BirthDate    string       `json:"birthDate"`
	Contact      []struct {
		Telecom []personItem `json:"telecom"`
	} `json:"contact"` // guardians, partners and other contacts of a Patient
}

// isOwn reports whether an address can belong to the patient: not to a contact such as a guardian,
// and not to a person with another date of birth. Dates may lack the day or month.
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

// is reports whether the resource matches the query, regardless of the server's search.
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

// isCurrent reports whether an item is current, because addresses are reassigned. An end date includes its last day.
func (i *personItem) isCurrent(now time.Time) bool {
	end := i.Period.End[:min(len(i.Period.End), len(time.DateOnly))]
	return i.Use != "old" && (end == "" || end >= now.UTC().Format(time.DateOnly)[:len(end)])
}

// isAddress reports whether two texts are the same e-mail address. Non-ASCII letters must be
// identical, because some fold to letters of another address.
func isAddress(a, b string) bool {
	return a == b || len(a+b) == utf8.RuneCountInString(a+b) && strings.EqualFold(a, b)
}
