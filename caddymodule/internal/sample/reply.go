package sample

import (
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"strconv"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/rawjson"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
)

const mediaType = "application/fhir+json"

// reply is an answer.
type reply struct {
	status int
	header http.Header
	body   []byte
}

// answerWith is a reply with a resource.
func answerWith(status int, text []byte) reply {
	return reply{status, http.Header{"Content-Type": {mediaType}}, text}
}

// write sends the reply.
func (p reply) write(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	maps.Copy(header, p.header)
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	if p.status != http.StatusNoContent && p.status != http.StatusNotModified {
		header.Set("Content-Length", strconv.Itoa(len(p.body)))
	}
	w.WriteHeader(p.status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(p.body) // the client has gone
	}
}

// object is a JSON object.
type object map[string]any

// failure is an error with its status and a code of http://hl7.org/fhir/issue-type.
type failure struct {
	status     int
	code, text string
}

func (f failure) Error() string { return f.text }

// ErrFull says that a store is at one of its bounds.
var ErrFull = errors.New("no room for further versions")

func invalid(text string) error { return failure{http.StatusBadRequest, "invalid", text} }

func unsupported(text string) error { return failure{http.StatusBadRequest, "not-supported", text} }

// describe is what an error tells the client.
func describe(err error) failure {
	if f, ok := errors.AsType[failure](err); ok {
		return f
	}
	if syntax, ok := errors.AsType[*rawjson.Error](err); ok {
		return failure{http.StatusBadRequest, "structure", syntax.Error()}
	}
	switch {
	case errors.Is(err, ErrFull):
		return failure{http.StatusInsufficientStorage, "too-costly", "The sample server is full. It forgets what was written when it is restarted."}
	case errors.Is(err, resource.ErrNoType):
		return failure{http.StatusBadRequest, "structure", "The body is no resource."}
	}
	switch status := interaction.Status(err); status {
	case http.StatusNotFound:
		return failure{status, "not-found", err.Error()}
	case http.StatusMethodNotAllowed:
		return failure{status, "not-supported", err.Error()}
	default:
		return failure{status, "invalid", err.Error()}
	}
}

// outcome is an error as an OperationOutcome.
func outcome(err error) reply {
	f := describe(err)
	type issue struct {
		Severity    string `json:"severity"`
		Code        string `json:"code"`
		Diagnostics string `json:"diagnostics"`
	}
	text, _ := json.Marshal(struct {
		ResourceType string  `json:"resourceType"`
		Issue        []issue `json:"issue"`
	}{"OperationOutcome", []issue{{"error", f.code, f.text}}})
	return answerWith(f.status, text)
}
