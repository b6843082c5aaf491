package enforce

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"mime"
	"net/http"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
)

// wantsContent reports whether an answer is a Binary of which the client wants the content in its own type: it names no
// format of FHIR's, or likes that type better (R4 binary.html#rest).
func wantsContent(header http.Header, i interaction.Interaction, a *message.Answer) bool {
	if a.Status != http.StatusOK {
		return false
	}
	if format := message.FormatOf(i.Parameters); format != "" {
		return !message.IsFHIRFormat(format)
	}
	accepted := message.ParseAccept(header)
	own := mediaOf(contentType(a))
	wanted := accepted.Fhir(own)
	return wanted == 0 || accepted[own] > wanted
}

// contentType is what a Binary says that its content is.
func contentType(a *message.Answer) string {
	res, err := resource.Parse(a.Body)
	if err != nil {
		return ""
	}
	value, _ := res.Member("contentType")
	return resource.Text(value)
}

// mediaOf is a media type without parameters; empty if it is none.
func mediaOf(contentType string) string {
	media, _, _ := mime.ParseMediaType(contentType)
	return media
}

// content is the answer with what the Binary holds. It may be of any type, so no browser may run it here.
func content(a *message.Answer) (*message.Answer, error) {
	res, err := resource.Parse(a.Body)
	if err != nil {
		return nil, message.Withheld(err)
	}
	value, _ := res.Member("data")
	data, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(resource.Text(value)), ""))
	if err != nil {
		return nil, message.Withheld(fmt.Errorf("data of a Binary: %w", err))
	}
	kind := contentType(a)
	if mediaOf(kind) == "" || strings.ContainsFunc(kind, func(r rune) bool { return r < ' ' || r > '~' }) {
		kind = "application/octet-stream"
	}
	header := maps.Clone(a.Header)
	header.Set("Content-Type", kind)
	header.Set("Content-Security-Policy", "default-src 'none'; sandbox")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Add("Vary", "Accept")
	return &message.Answer{Status: a.Status, Header: header, Body: data, Buffer: a.Buffer}, nil
}

// isContent reports whether a body is the content of a Binary: of any type but FHIR's.
func isContent(header http.Header, i interaction.Interaction) bool {
	media := mediaOf(header.Get("Content-Type"))
	return i.Type == "Binary" && strings.Contains(media, "/") && !message.FhirMedia[media] && slices.Contains(contentKinds, i.Kind)
}

var contentKinds = []interaction.Kind{interaction.Create, interaction.ConditionalCreate, interaction.Update, interaction.ConditionalUpdate}

var errContext = errors.New("several security contexts")

// binary makes the Binary that a content stands for, with the header X-Security-Context as its securityContext (R4
// binary.html#rest). It is judged as if it had been sent so.
func binary(c message.Call, i interaction.Interaction, limit int64) (message.Call, error) {
	contexts := c.Header.Values("X-Security-Context")
	switch {
	case len(contexts) > 1:
		return c, message.Invalid(errContext, "The header X-Security-Context may be sent once.")
	case int64(base64.StdEncoding.EncodedLen(len(c.Body))) > limit:
		return c, &guard.Error{
			Status: http.StatusRequestEntityTooLarge, Err: message.ErrBody,
			Description: fmt.Sprintf("The content is longer than %d bytes in base64.", limit),
		}
	}
	var b bytes.Buffer
	b.WriteString(`{"resourceType":"Binary"`)
	if i.Kind == interaction.Update {
		b.WriteString(`,"id":` + message.Quoted(i.ID))
	}
	b.WriteString(`,"contentType":` + message.Quoted(c.Header.Get("Content-Type")))
	if len(contexts) == 1 {
		b.WriteString(`,"securityContext":{"reference":` + message.Quoted(contexts[0]) + `}`)
	}
	b.WriteString(`,"data":"` + base64.StdEncoding.EncodeToString(c.Body) + `"}`)
	c.Body, c.Header = b.Bytes(), maps.Clone(c.Header)
	c.Header.Set("Content-Type", message.TypeJSON)
	return c, nil
}
