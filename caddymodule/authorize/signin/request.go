package signin

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/page"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/session"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

// Request is a request to sign in: of an app, by its authorization request, or of a page of the
// gateway.
type Request struct {
	To      Destination // what somebody signs in to
	How     Parameters  // how
	Query   string      // what it is made of again when the browser returns
	Purpose Purpose     // what follows

	// Once is what may be used only once, such as a request_uri. It is used when the response is
	// ready, so that earlier failures can be tried again. May be nil.
	Once *Once

	AskedFactor  bool // the person was asked already for all factors that the request asks for
	Renewed      bool // the session was renewed for this request; pages that the request asks for were not shown yet
	justSignedIn bool // with each factor that they have
}

// MarkUsed uses up what may be used only once, in the same step as what comes before it.
func (req *Request) MarkUsed(ctx context.Context, before ...store.Step) error {
	return req.Once.use(ctx, before...)
}

// requiredACR is the class of sign-in that must be met, or "".
func (req *Request) requiredACR() string {
	if oauth2.MeetsACR(req.To.ACR, req.How.EssentialACR) {
		return req.To.ACR
	}
	return req.How.EssentialACR
}

// acrAt is what to ask of an identity provider, in its words where it has any: acr_values, and what
// must be met.
func (req *Request) acrAt(p *people.Provider) (values, essential string) {
	var words []string
	if required := req.requiredACR(); required != oauth2.ACRSingleFactor {
		words = p.ACRMap.Words(required)
	}
	essential = strings.Join(words, " ")
	for word := range strings.FieldsSeq(req.How.ACRValues) {
		theirs := p.ACRMap.Words(word)
		if len(theirs) == 0 {
			theirs = []string{word}
		}
		for _, word := range theirs {
			if !slices.Contains(words, word) {
				words = append(words, word)
			}
		}
	}
	return strings.Join(words, " "), essential
}

// Destination is what somebody signs in to: an app, or a page of the gateway.
type Destination struct {
	ClientID  string        // of the app; "" for a page
	Title     string        // to show to people; may be ""
	Links     page.AppLinks // of the app
	Providers []string      // the ways to sign in, as in [people.Accounts.Ways]
	ACR       string        // the least class of sign-in; "" for any
	Address   string        // where the browser goes in the end, so that forms may lead there

	NeedsFHIRUser bool // without the person's own FHIR resource it is of no use
}

// Purpose is what somebody signs in for.
type Purpose interface {
	// Continue goes on with the person who has signed in.
	Continue(w http.ResponseWriter, r *http.Request, signedIn *session.SignedIn)

	// Refuse sends an error to whom it concerns.
	Refuse(w http.ResponseWriter, r *http.Request, err error)
}
