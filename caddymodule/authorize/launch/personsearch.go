package launch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/tokenclaim"
)

// PersonSearch says how a person's own resource is found.
type PersonSearch struct {
	// `Practitioner`, `Patient`, `RelatedPerson` or `Person`. Required.
	Type string `json:"type"`

	// The system of the identifier to search by. Default: the verified e-mail address is searched for.
	System string `json:"system,omitempty"`

	// The provider's claim with the value of the identifier, or a path such as `hospital.number`. Required with a system.
	Claim string `json:"claim,omitempty"`
}

// Check refuses a search that cannot find a person.
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

	Value     string `json:"value"`                // of the identifier, or the address
	BirthDate string `json:"birth_date,omitempty"` // if it is known: compared where an address may be somebody else's
}

// String leaves the value out, which may be nobody else's business.
func (q PersonQuery) String() string {
	if q.System == "" {
		return q.Type + " email"
	}
	return q.Type + " identifier " + q.System
}

// FoundPerson is what a search found.
type FoundPerson struct {
	By        PersonQuery `json:"by"`        // the search
	Reference string      `json:"reference"` // Type/id
	At        time.Time   `json:"at"`        // when
}

const (
	lasting  = 24 * time.Hour // of a find, without another search
	maxValue = 1 << 10        // bytes
)

// Queries are the searches that a person's claims and their verified address, if they have one, allow. The date of birth may be
// empty.
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

// Searcher searches for people.
type Searcher struct {
	Records Records         // asks the FHIR server; nil if there is none
	Trail   *audit.Recorder // gets what is found
}

var errNoAnswer = &oauth2.Error{
	Code: "temporarily_unavailable", Description: "the FHIR server does not say who this person is; try again later",
}

// Find returns what the first search finds that finds somebody; nil if none does. What was found before counts for a day. If
// the FHIR server does not answer, or nobody asks it, it is returned beside the error. The logger names the person.
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
			logger.WarnContext(ctx, "no fhirUser: the FHIR server has more than one record of this person, or somebody else has the address", "search", q.String())
			return nil, nil
		case !errors.Is(err, ErrNoRecord):
			logger.ErrorContext(ctx, "the FHIR server did not say who a person is", "search", q.String(), "error", err)
			unavailable := *errNoAnswer
			unavailable.Err = err
			return before, &unavailable
		}
	}
	logger.WarnContext(ctx, "no fhirUser: the FHIR server has no record of this person, or the provider sends nothing to search by", "searches", len(asked))
	return nil, nil
}
