package bearer

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/metrics"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

// Decision is the outcome of a request at fhir_bearer.
type Decision string

const (
	decisionAllowed     Decision = "allowed"
	decisionPublic      Decision = "public"    // needs no token
	decisionPreflight   Decision = "preflight" // answered here
	decisionBadRequest  Decision = "bad_request"
	decisionNoToken     Decision = "no_token"
	decisionInvalid     Decision = "invalid_token"
	decisionExpired     Decision = "expired_token"
	decisionStepUp      Decision = "step_up" // another sign-in is asked for
	decisionForbidden   Decision = "forbidden"
	decisionThrottled   Decision = "throttled" // an [Admission] rejected it
	decisionUnavailable Decision = "unavailable"
)

// Decisions are all that the metrics tell apart.
var Decisions = []Decision{
	decisionAllowed, decisionPublic, decisionPreflight, decisionBadRequest, decisionNoToken, decisionInvalid, decisionExpired,
	decisionStepUp, decisionForbidden, decisionThrottled, decisionUnavailable,
}

var (
	bearerDecisions = metrics.NewCounters("bearer_decisions_total", "Requests that fhir_bearer decided about.", "outcome")
	decisionCounts  = metrics.ByLabel(Decisions, func(d Decision) prometheus.Counter { return bearerDecisions.WithLabelValues(string(d)) })
)

func decided(d Decision) { decisionCounts[d].Inc() }

func refusal(err *guard.Error) Decision {
	switch {
	case err.Status == http.StatusServiceUnavailable:
		return decisionUnavailable
	case err.Status == http.StatusForbidden, err.Status == http.StatusNotFound:
		return decisionForbidden
	case err.Status != http.StatusUnauthorized:
		return decisionBadRequest
	case errors.Is(err, guard.ErrNoToken):
		return decisionNoToken
	case errors.Is(err, guard.ErrExpired):
		return decisionExpired
	case errors.Is(err, guard.ErrStepUp):
		return decisionStepUp
	}
	return decisionInvalid
}

// isPublic reports whether a request needs no token. That is only the capabilities interaction (FHIR R4 §3.1.0.13; SMART
// App Launch 2.2), with exactly its method, path and parameters, since servers may give a meaning to others.
func isPublic(r *http.Request, fhirBase string) bool {
	if r.URL.Path != fhirBase+"/metadata" || r.Method != http.MethodGet && r.Method != http.MethodHead {
		return false
	}
	query, err := url.ParseQuery(r.URL.RawQuery)
	for name, values := range query {
		if len(values) > 1 || !slices.Contains(capabilityParameters, name) {
			return false
		}
	}
	return err == nil
}

// capabilityParameters are the parameters of the capabilities interaction (FHIR R4 §3.1.0.13, §3.1.0.1.10).
var capabilityParameters = []string{"mode", "_format", "_pretty", "_summary", "_elements"}

// challenge is what tells clients how to get a token.
type challenge struct {
	realm    string
	resource string // the address of the API's metadata (RFC 9728); empty if there is none
}

// refuse counts a refusal and sets the challenge, which survives into handle_errors.
func (c challenge) refuse(w http.ResponseWriter, err error) error {
	refused, ok := errors.AsType[*guard.Error](err)
	if !ok {
		return err
	}
	decided(refusal(refused))
	if challenge := refused.Challenge(c.realm); challenge != "" {
		if c.resource != "" {
			challenge += fmt.Sprintf(", resource_metadata=%q", c.resource) // RFC 9728 §5.1
		}
		w.Header().Set("WWW-Authenticate", challenge)
	}
	if allow := refused.Allow(); allow != "" {
		w.Header().Set("Allow", allow)
	}
	if after := refused.RetryAfter(); after != "" {
		w.Header().Set("Retry-After", after)
	} else if errors.Is(err, store.ErrUnavailable) {
		oauth2.SetRetryAfter(w.Header(), refused.Status)
	}
	return caddyhttp.Error(refused.Status, err)
}
