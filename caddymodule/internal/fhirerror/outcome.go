package fhirerror

import (
	"cmp"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-fhir/caddy-fhir/terminology/negotiation"
)

// Write writes an error as an OperationOutcome, in the format that the request asks for.
func Write(w http.ResponseWriter, r *http.Request, failure error) error {
	status, outcome, err := describe(failure)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/fhir+json")
	if _, isJSON := errors.AsType[jsonError](failure); !isJSON && negotiation.HasXML() && negotiation.PrefersXML(r) {
		if outcome, err = negotiation.AppendXML(nil, outcome); err != nil {
			return err
		}
		w.Header().Set("Content-Type", "application/fhir+xml")
	}
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, err = w.Write(outcome)
	return err
}

// operationOutcome has no details and no HTML in its texts, unlike the OperationOutcomes of package terminology.
type operationOutcome struct {
	ResourceType string         `json:"resourceType"`
	Issue        []outcomeIssue `json:"issue"`
}

type outcomeIssue struct {
	Severity    string `json:"severity"`
	Code        string `json:"code"`
	Diagnostics string `json:"diagnostics"`
}

// issueError is an error that is meant to be shown. Its IssueType is a code of http://hl7.org/fhir/issue-type, and its
// Diagnostics hold nothing that the client may not know.
type issueError interface {
	error
	IssueType() string
	Diagnostics() string
}

// jsonError is an error whose OperationOutcome is always JSON: a rejection by fhir_bearer, which does not negotiate formats.
type jsonError interface {
	error
	OnlyJSON()
}

// outcomeError is an error with an OperationOutcome of its own, for more than one issue's code and text.
type outcomeError interface {
	error
	OperationOutcome() []byte
}

// describe makes an OperationOutcome of an error. An error that is not meant to be shown is described by its status
// alone, because its text may name hosts and files.
func describe(err error) (status int, outcome []byte, _ error) {
	failed, _ := errors.AsType[caddyhttp.HandlerError](err)
	status = cmp.Or(failed.StatusCode, http.StatusInternalServerError)
	if whole, ok := errors.AsType[outcomeError](err); ok {
		return status, whole.OperationOutcome(), nil
	}
	outcome, err = json.Marshal(operationOutcome{"OperationOutcome", []outcomeIssue{issueOf(err, status)}})
	return status, outcome, err
}

func issueOf(err error, status int) outcomeIssue {
	if shown, ok := errors.AsType[issueError](err); ok {
		return outcomeIssue{"error", shown.IssueType(), shown.Diagnostics()}
	}
	if d, ok := statusIssues[status]; ok {
		return outcomeIssue{"error", d.code, d.text}
	}
	return outcomeIssue{"error", "processing", http.StatusText(status)}
}

var statusIssues = map[int]struct{ code, text string }{
	http.StatusUnauthorized:          {"login", "An access token is required."},
	http.StatusForbidden:             {"forbidden", "This is not allowed."},
	http.StatusNotFound:              {"not-found", "There is nothing at this address."},
	http.StatusMethodNotAllowed:      {"not-supported", "This method is not supported here."},
	http.StatusRequestEntityTooLarge: {"too-long", "The request is too large."},
	http.StatusTooManyRequests:       {"throttled", "Too many requests. Try again later."},
	http.StatusInternalServerError:   {"exception", "The gateway failed. Its log says why."},
	http.StatusBadGateway:            {"transient", "The FHIR server behind this gateway could not be reached. Try again later."},
	http.StatusServiceUnavailable:    {"transient", "The service is not available at present. Try again later."},
	http.StatusGatewayTimeout:        {"timeout", "The FHIR server behind this gateway did not answer in time."},
}
