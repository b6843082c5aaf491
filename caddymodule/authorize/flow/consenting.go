package flow

import (
	"context"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/consent"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
)

// consenting decides who is asked.
type consenting struct {
	consents *consent.Consents
}

// needed reports whether the person must be asked, and otherwise limits the request to
// what they allowed. The operator vouches for configured clients, so people are asked only if
// the configuration or the request says so, or if they refused the last time. What they
// unticked they do not give, whoever asked.
func (c *consenting) needed(ctx context.Context, req *authorizationRequest, user *people.User) (ask bool, err error) {
	switch {
	case req.client.Consent == client.ConsentSkip:
		return false, nil
	case req.signIn.How.Prompts("consent"):
		return true, nil
	}
	required := req.client.RequiresConsent()
	all, err := c.consents.Load(ctx, user.ID, req.client.ID)
	req.about = req.aboutPatient(user)
	earlier := all.About(req.about)
	switch {
	case err != nil:
		return true, err
	case earlier == nil:
		return required, nil
	}
	answer, asked := earlier.Answer(req.items(), !required)
	return earlier.Declined || !asked || req.limit(answer) != nil, nil
}

// aboutPatient is what a person's answer counts for.
func (req *authorizationRequest) aboutPatient(user *people.User) consent.About {
	person := user.Person()
	patient := req.patient(person)
	return consent.About{Patient: patient, Own: patient != "" && person.Own() == patient}
}
