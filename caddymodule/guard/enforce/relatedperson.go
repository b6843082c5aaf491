package enforce

import (
	"net/http"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/server"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/relationship"
)

// RelatedPatients are the ids of the patients for whom a RelatedPerson or a Person acts now, as the FHIR server has it.
func (e *Enforcer) RelatedPatients(r *http.Request, next message.NextHandler, user interaction.Reference) ([]string, error) {
	x, at := server.New(e.Base, e.Limits, e.Memory, next, r), message.Addresses{Path: e.Base, Base: e.BaseURL}
	defer x.Share.Release()
	a, err := x.Ask(r.Context(), message.Get(user.String(), ""))
	if err != nil || a.Status != http.StatusOK || !a.IsJSON() {
		return nil, err
	}
	res, err := at.Parse(a.Body)
	if err != nil || res.Type != user.Type || res.ID != user.ID {
		return nil, err
	}
	return relationship.Patients(res, time.Now()), nil
}
