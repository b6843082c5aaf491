package sample

import (
	"context"
	"mime"
	"net/http"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
)

// request is one request, or one entry of a batch or transaction.
type request struct {
	interaction.Interaction
	ctx    context.Context
	method string
	header http.Header
	body   []byte
	base   string // the address of the FHIR API
	id     string // for what is created; empty: a new one
}

// changes reports whether a request may write.
func (q request) changes() bool {
	switch q.Kind {
	case interaction.Create, interaction.ConditionalCreate, interaction.Update, interaction.ConditionalUpdate,
		interaction.Delete, interaction.ConditionalDelete, interaction.Bundle:
		return true
	}
	return false
}

// checkFormat refuses what is to be answered, or was sent, in another form than JSON. A Binary has its own.
func (q request) checkFormat(contentType string) error {
	accepted := q.header.Get("Accept")
	if format := value(q.Parameters, "_format"); format != "" {
		accepted = format
	}
	isBinary := q.Type == "Binary" && q.Kind == interaction.Read
	if !isBinary && accepted != "" && !strings.Contains(accepted, "json") && !strings.Contains(accepted, "*/*") && !strings.Contains(accepted, "application/*") {
		return failure{http.StatusNotAcceptable, "not-supported", "Answers are in JSON only."}
	}
	if !q.changes() || len(q.body) == 0 {
		return nil
	}
	if sent, _, err := mime.ParseMediaType(contentType); err != nil || sent != mediaType && sent != "application/json" {
		return failure{http.StatusUnsupportedMediaType, "not-supported", "The body must be of type " + mediaType + "."}
	}
	return nil
}

// reference is the resource that the path names.
func (q request) reference() interaction.Reference {
	return interaction.Reference{Type: q.Type, ID: q.ID}
}

// value is the value of a parameter; empty if it is missing.
func value(parameters []smart.Parameter, name string) string {
	for _, p := range parameters {
		if p.Name == name {
			return p.Value
		}
	}
	return ""
}

// canceled is the error of a request whose client has gone, or has waited too long.
func (q request) canceled() error {
	if err := q.ctx.Err(); err != nil {
		return failure{http.StatusServiceUnavailable, "timeout", "The request was canceled."}
	}
	return nil
}

// takes refuses parameters but those that are named, and those of every answer.
func (q request) takes(names ...string) error {
	for _, p := range q.Parameters {
		if !isForm(p.Name) && !slices.Contains(names, p.Name) {
			return unsupported("The parameter " + p.Name + " is not supported here.")
		}
	}
	return nil
}

// isForm reports whether a parameter is about the form of an answer. _elements and _summary may be answered with whole
// resources (R4 search.html#elements).
func isForm(name string) bool {
	return slices.Contains([]string{"_format", "_pretty", "_elements", "_offset"}, name)
}
