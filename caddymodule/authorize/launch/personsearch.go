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

// PersonSearch configures the search for a person's own resource at the FHIR server.
type PersonSearch struct {
	// The resource type: `Practitioner`, `Patient`, `RelatedPerson` or `Person`. Required.
	Type string `json:"type"`

	// The system of the identifier to search for. Default: search by verified e-mail address.
	System string `json:"system,omitempty"`

	// The claim of the identity provider with the identifier's value, or a path such as `hospital.number`. Required with a
	// system.
	Claim string `json:"claim,omitempty"`
}

// Check returns an error if the search is invalid.
func (s PersonSearch) Check() error {
	switch {
	case !slices.Contains([]string{"Practitioner", "Patient", "RelatedPerson", "Person"}, s.Type):
		return fmt.Errorf("fhir_user_search: unknown resource type %q: use Practitioner, Patient, RelatedPerson or Person", s.Type)
	case (s.System == "") != (s.Claim == ""):
		return fmt.Errorf("fhir_user_search %s: expected identifier <system> <claim>, or email", s.Type)
	}
	return nil
}

// PersonQuery is a [PersonSearch] with the values of one person.
type PersonQuery struct {
	PersonSearch

	Value     string `json:"value"`                // value of the identifier, or e-mail address
	BirthDate string `json:"birth_date,omitempty"` // date of birth, if known; must match if the e-mail address may belong to another person
}

// String describes the query. It omits the value, which is personal data.
func (q PersonQuery) String() string {
	if q.System == "" {
		return q.Type + " email"
	}
	return q.Type + " identifier " + q.System
}

// FoundPerson is the result of a [Searcher]'s search.
type FoundPerson struct {
	Query     PersonQuery `json:"by"`        // query that found the resource
	Reference string      `json:"reference"` // resource in the form Type/id
	FoundAt   time.Time   `json:"at"`        // when the search was made
}

const (
	resultLifetime = 24 * time.Hour // how long a result is used before the search is repeated
	maxValueLength = 1 << 10        // maximum length of a search value in bytes
)

// Queries returns the searches that are possible with a person's claims and verified e-mail address (both optional).
func Queries(searches []PersonSearch, claims map[string]any, address, birthDate string) (queries []PersonQuery) {
	for _, s := range searches {
		values, wantBirthDate := []string{address}, birthDate
		if s.System != "" {
			values, _ = tokenclaim.Read(claims, s.Claim)
			wantBirthDate = ""
		}
		if len(values) == 1 && values[0] != "" && len(values[0]) <= maxValueLength {
			queries = append(queries, PersonQuery{s, values[0], wantBirthDate})
		}
	}
	return queries
}

// Searcher searches for people's own resources at the FHIR server.
type Searcher struct {
	Records Records         // access to the FHIR server; nil if not configured
	Trail   *audit.Recorder // audit log for resources found
}

var errSearchUnavailable = &oauth2.Error{
	Code: "temporarily_unavailable", Description: "the FHIR server could not be searched for this person; try again later",
}

// Find returns the result of the first successful query, or nil. It returns previous if it is at most a day old. If the FHIR
// server is unreachable or not configured, it returns previous with an error. The logger must identify the person.
func (s Searcher) Find(ctx context.Context, queries []PersonQuery, person Person, previous *FoundPerson, now time.Time, logger *slog.Logger) (*FoundPerson, error) {
	switch {
	case previous == nil:
	case !slices.Contains(queries, previous.Query):
		previous = nil
	case now.Sub(previous.FoundAt) < resultLifetime:
		return previous, nil
	}
	for _, q := range queries {
		reference, err := q.find(ctx, s.Records, person)
		switch {
		case err == nil:
			s.Trail.Record(ctx, audit.Event{Kind: audit.KindFHIRUser, User: person.Subject, Reason: reference + " found by " + q.String()})
			return &FoundPerson{Query: q, Reference: reference, FoundAt: now.UTC()}, nil
		case errors.Is(err, errAmbiguous):
			logger.WarnContext(ctx, "fhirUser omitted: several FHIR resources match, or the e-mail address may belong to someone else", "search", q.String())
			return nil, nil
		case !errors.Is(err, ErrNoRecord):
			logger.ErrorContext(ctx, "fhirUser search failed", "search", q.String(), "error", err)
			unavailable := *errSearchUnavailable
			unavailable.Err = err
			return previous, &unavailable
		}
	}
	logger.WarnContext(ctx, "fhirUser omitted: no FHIR resource matches, or the idp sent no search value", "searches", len(queries))
	return nil, nil
}

// relatedTypes maps a resource type to the other type that may contain the same e-mail address: a child's Patient resource may
// contain the mother's address.
var relatedTypes = map[string]string{"Patient": "RelatedPerson", "RelatedPerson": "Patient"}

// errAmbiguous means that a search matched several resources.
var errAmbiguous = errors.New("several FHIR resources match the person")

// find returns the resource that matches the query, as Type/id. The error is [ErrNoRecord] (no match) or [errAmbiguous].
func (q PersonQuery) find(ctx context.Context, records Records, person Person) (string, error) {
	if !isSearchText(q.Value) || strings.TrimSpace(q.Value) == "" {
		return "", ErrNoRecord
	}
	found, err := q.search(ctx, records, person, q.Type)
	switch {
	case err != nil:
		return "", err
	case len(found) > 1:
		return "", errAmbiguous
	case len(found) == 0 || !found[0].matches(q, time.Now()):
		return "", ErrNoRecord
	}
	if otherType := relatedTypes[q.Type]; otherType != "" && q.System == "" {
		all, err := q.search(ctx, records, person, otherType)
		switch {
		case err != nil:
			return "", err
		case len(all) > 0 || !found[0].mayOwnAddress(q):
			return "", errAmbiguous
		}
	}
	return q.Type + "/" + found[0].ID, nil
}

// search returns the resources of a type with the identifier or e-mail address of the query.
func (q PersonQuery) search(ctx context.Context, records Records, person Person, resourceType string) ([]personResource, error) {
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
	people, hasMore := found.resources()
	people = slices.DeleteFunc(people, func(p personResource) bool { return p.ResourceType == "OperationOutcome" })
	if hasMore {
		return nil, errAmbiguous
	}
	return people, nil
}

// personResource contains the elements of a Practitioner, Patient, RelatedPerson or Person that are used for matching.
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

// mayOwnAddress reports whether an e-mail address can belong to the patient. It returns false if the address belongs to a
// contact such as a guardian, or the dates of birth differ. Dates may lack the day or month.
func (p *personResource) mayOwnAddress(q PersonQuery) bool {
	precision := min(len(p.BirthDate), len(q.BirthDate))
	if p.BirthDate[:precision] != q.BirthDate[:precision] && !strings.HasPrefix(q.BirthDate, "0000") { // "0000" means that the year is not known (OpenID Connect Core §5.1)
		return false
	}
	for _, c := range p.Contact {
		if slices.ContainsFunc(c.Telecom, func(t personItem) bool { return isSameAddress(t.Value, q.Value) }) {
			return false
		}
	}
	return true
}

// personItem is an element of type Identifier or ContactPoint.
type personItem struct {
	System string `json:"system"`
	Value  string `json:"value"`
	Use    string `json:"use"`
	Period struct {
		End string `json:"end"`
	} `json:"period"`
}

// matches reports whether the resource matches the query. It does not rely on the FHIR server's search.
func (p *personResource) matches(q PersonQuery, now time.Time) bool {
	if p.ResourceType != q.Type || !IsID(p.ID) || p.Active != nil && !*p.Active {
		return false
	}
	if q.System == "" {
		return slices.ContainsFunc(p.Telecom, func(t personItem) bool {
			return t.isCurrent(now) && t.System == "email" && isSameAddress(t.Value, q.Value)
		})
	}
	return slices.ContainsFunc(p.Identifier, func(i personItem) bool {
		return i.isCurrent(now) && i.System == q.System && i.Value == q.Value
	})
}

// isCurrent reports whether an item is currently valid, because addresses are reassigned. The period includes the end date.
func (i *personItem) isCurrent(now time.Time) bool {
	end := i.Period.End[:min(len(i.Period.End), len(time.DateOnly))]
	return i.Use != "old" && (end == "" || end >= now.UTC().Format(time.DateOnly)[:len(end)])
}

// isSameAddress reports whether two e-mail addresses are equal, ignoring the case of ASCII letters. Non-ASCII letters must be
// identical, because some fold to letters of another address.
func isSameAddress(a, b string) bool {
	return a == b || len(a+b) == utf8.RuneCountInString(a+b) && strings.EqualFold(a, b)
}
