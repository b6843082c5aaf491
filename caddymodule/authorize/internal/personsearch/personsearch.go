// Package personsearch finds out at the FHIR server which resource is a person's own, by what their identity provider
// says of them.
package personsearch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/internal/launch"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/tokenclaim"
)

// Search says how a person's own resource is found.
type Search struct {
	Type   string `json:"type"`             // of the resource
	System string `json:"system,omitempty"` // of the identifier; "" for the verified e-mail address
	Claim  string `json:"claim,omitempty"`  // the provider's name, or path, of what has its value
}

// Check refuses a search that cannot find a person.
func (s Search) Check() error {
	switch {
	case !slices.Contains([]string{"Practitioner", "Patient", "RelatedPerson", "Person"}, s.Type):
		return fmt.Errorf("fhir_user_search %q: use Practitioner, Patient, RelatedPerson or Person", s.Type)
	case (s.System == "") != (s.Claim == ""):
		return fmt.Errorf("fhir_user_search %s: use identifier <system> <claim>, or email", s.Type)
	}
	return nil
}

// Asked is a search for one person.
type Asked struct {
	Search

	Value     string `json:"value"`                // of the identifier, or the address
	BirthDate string `json:"birth_date,omitempty"` // with the address of a patient, or of who acts for one, if it is known
}

// String leaves the value out, which may be nobody else's business.
func (a Asked) String() string {
	if a.System == "" {
		return a.Type + " email"
	}
	return a.Type + " identifier " + a.System
}

// Found is what a search found.
type Found struct {
	By        Asked     `json:"by"`        // the search
	Reference string    `json:"reference"` // Type/id
	At        time.Time `json:"at"`        // when
}

// lasting is how long a find counts without another search.
const lasting = 24 * time.Hour

// maxValue is how long a value may be, in bytes.
const maxValue = 1 << 10

// Of are the searches that a person's claims and their verified address, if they have one, allow. The date of birth may be
// empty.
func Of(searches []Search, claims map[string]any, address, birthDate string) (asked []Asked) {
	for _, s := range searches {
		values, born := []string{address}, birthDate
		if s.System != "" {
			values, _ = tokenclaim.Read(claims, s.Claim)
			born = ""
		}
		if len(values) == 1 && values[0] != "" && len(values[0]) <= maxValue {
			asked = append(asked, Asked{s, values[0], born})
		}
	}
	return asked
}

// Searcher searches.
type Searcher struct {
	Records launch.Records  // asks the FHIR server; nil if there is none
	Trail   *audit.Recorder // gets what is found
}

var errNoAnswer = &oauth2.Error{
	Code: "temporarily_unavailable", Description: "the FHIR server does not say who this person is; try again later",
}

// Find returns what the first search finds that finds somebody; nil if none does. What was found before counts for a day. If
// the FHIR server does not answer, it is returned beside the error. The logger names the person.
func (s Searcher) Find(ctx context.Context, asked []Asked, person launch.Person, before *Found, now time.Time, logger *slog.Logger) (*Found, error) {
	if before != nil && !slices.Contains(asked, before.By) {
		before = nil
	}
	if before != nil && now.Sub(before.At) < lasting {
		return before, nil
	}
	for _, a := range asked {
		reference, err := launch.PersonQuery{Type: a.Type, System: a.System, Value: a.Value, BirthDate: a.BirthDate}.Find(ctx, s.Records, person)
		switch {
		case err == nil:
			s.Trail.Record(ctx, audit.Event{Kind: audit.FHIRUser, User: person.Subject, Reason: reference + " was found by " + a.String()})
			return &Found{By: a, Reference: reference, At: now.UTC()}, nil
		case errors.Is(err, launch.ErrAmbiguous):
			logger.WarnContext(ctx, "no fhirUser: the FHIR server has more than one record of this person, or somebody else has the address", "search", a.String())
			return nil, nil
		case !errors.Is(err, launch.ErrNoRecord):
			logger.ErrorContext(ctx, "the FHIR server did not say who a person is", "search", a.String(), "error", err)
			unavailable := *errNoAnswer
			unavailable.Err = err
			return before, &unavailable
		}
	}
	logger.WarnContext(ctx, "no fhirUser: the FHIR server has no record of this person, or the provider sends nothing to search by", "searches", len(asked))
	return nil, nil
}
