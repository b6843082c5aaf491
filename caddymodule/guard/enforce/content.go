package enforce

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
)

// answerContent answers the read of a Binary with its content. The Binary is judged without its data; then the content
// passes from the FHIR server as it comes, whatever its length. A server that does not send the content of the version that
// was judged is asked for the Binary in FHIR JSON, which is judged as a whole.
func (x *exchange) answerContent(ctx context.Context, w http.ResponseWriter, c message.Call, i interaction.Interaction) (_ *message.Answer, err error) {
	ctx, done := x.judging(ctx, i)
	defer func() { done(err) }()
	of, err := x.beforePolicies().forCall(ctx, c, i)
	if err != nil {
		return nil, err
	}
	reads := of.reads()
	meta, res, err := reads.Admit(ctx, c, i)
	if err != nil {
		return nil, err
	}
	etag := meta.Header.Get("Etag")
	if message.IsNotModified(x.r.Header, etag) {
		return &message.Answer{Status: http.StatusOK, Header: http.Header{"Etag": {etag}}}, nil
	}
	p := contentWriter{ResponseWriter: w, etag: etag, content: etag, contentType: contentType(meta), context: contextOf(res)}
	if began, err := p.pass(ctx, x, message.Call{Method: c.Method, Path: c.Path}); began || err != nil {
		return nil, err
	}
	a, err := reads.Read(ctx, c, i)
	if err != nil {
		return nil, err
	}
	hash := externalHash(a)
	switch {
	case hash == "":
		return content(a)
	case of.judge.LooksAtData(): // and has not seen it
		return nil, message.NotFound()
	}
	p.etag, p.content = a.Header.Get("Etag"), `"`+hash+`"`
	began, err := p.pass(ctx, x, message.Call{Method: c.Method, Path: c.Path + "/$binary-access-read", Query: "path=Binary"})
	if !began && err == nil {
		err = message.Withheld(errContent)
	}
	return nil, err
}

// externalHash is the SHA-256 hash of a content that HAPI stores outside of its Binary, and sends by the operation
// $binary-access-read only, because it is longer than 10 MB. Empty if the Binary has its content.
func externalHash(a *message.Answer) string {
	res, err := resource.Parse(a.Body)
	if _, inside := res.Member("data"); err != nil || inside {
		return ""
	}
	data, _ := res.Member("_data")
	extensions, _ := resource.Field(data, "extension")
	for extension := range resource.Elements(extensions) {
		if url, _ := resource.Field(extension, "url"); resource.Text(url) == "http://hapifhir.io/fhir/StructureDefinition/externalized-binary-hash-sha256" {
			value, _ := resource.Field(extension, "valueString")
			return resource.Text(value)
		}
	}
	return ""
}

// contextOf is the reference in the securityContext of a Binary.
func contextOf(res resource.Resource) string {
	element, _ := res.Member("securityContext")
	reference, _ := resource.Field(element, "reference")
	return resource.Text(reference)
}

// contentWriter passes the content of a Binary to the client, if it is that of the version that was judged.
type contentWriter struct {
	http.ResponseWriter             // the client's
	header              http.Header // the FHIR server's
	etag                string      // of the version that was judged; empty if it is not known
	content             string      // the ETag with which the FHIR server sends the content of that version
	contentType         string      // of that version
	context             string      // the reference in its securityContext
	began               bool        // the client gets the content
	refused             error       // the response is something else
}

// contentRequestHeaders are the client's headers that select a part of the content (RFC 9110 §14.2).
var contentRequestHeaders = []string{"Range", "If-Range"}

// contentHeaders are the FHIR server's headers that describe the content.
var contentHeaders = []string{
	"Accept-Ranges", "Cache-Control", "Content-Disposition", "Content-Length", "Content-Range", "Last-Modified", "X-Security-Context",
}

// pass asks the FHIR server for the content. Without a version nothing would tie the content to what was judged, and a
// content that has a format of FHIR's could not be told from the Binary itself: both are not asked for.
//
// It reports whether the client gets the content.
func (p contentWriter) pass(ctx context.Context, x *exchange, c message.Call) (began bool, err error) {
	if p.etag == "" || p.content == "" || message.FhirMedia[mediaOf(p.contentType)] {
		return false, nil
	}
	p.header = http.Header{}
	call := message.Call{Method: c.Method, Path: c.Path, Query: c.Query, Header: http.Header{}}
	for _, name := range contentRequestHeaders {
		if values := x.r.Header[name]; len(values) > 0 {
			call.Header[name] = values
		}
	}
	err = func() error {
		defer func() { message.ForgiveAbort(recover(), p.refused) }()
		return x.server.Pass(ctx, call, []string{contentAccept}, &p)
	}()
	if p.refused != nil {
		return false, nil
	}
	return p.began, err
}

// contentAccept asks for the content of a Binary, whatever its type. It names no type that a server could take for a format
// of FHIR's, as HAPI takes application/xml.
const contentAccept = "application/octet-stream, */*;q=0.1"

var errContent = errors.New("not the content of the version that was judged")

// Header implements http.ResponseWriter.
func (p *contentWriter) Header() http.Header { return p.header }

// WriteHeader implements http.ResponseWriter.
func (p *contentWriter) WriteHeader(status int) {
	if p.began || p.refused != nil || status < http.StatusOK {
		return
	}
	if !p.isContent(status) {
		p.refused = errContent
		return
	}
	p.began = true
	header := p.ResponseWriter.Header()
	for _, name := range contentHeaders {
		if values := p.header[name]; len(values) > 0 {
			header[name] = values
		}
	}
	header.Set("Etag", p.etag)
	setContent(header, p.contentType)
	p.ResponseWriter.WriteHeader(status)
}

// isContent reports whether a response is the content of the version that was judged.
func (p *contentWriter) isContent(status int) bool {
	a := message.Answer{Status: status, Header: p.header}
	media := mediaOf(p.header.Get("Content-Type"))
	context := p.header.Get("X-Security-Context")
	return (status == http.StatusOK || status == http.StatusPartialContent) &&
		message.IsNotModified(http.Header{"If-None-Match": {p.content}}, p.header.Get("Etag")) &&
		!a.IsJSON() && !message.FhirMedia[media] && p.header.Get("Content-Encoding") == "" &&
		(context == "" || context == p.context || strings.HasSuffix(context, "/"+p.context) && p.context != "")
}

// Write implements http.ResponseWriter. Its error makes the next handler stop reading from the server.
func (p *contentWriter) Write(b []byte) (int, error) {
	p.WriteHeader(http.StatusOK)
	if p.refused != nil {
		return 0, p.refused
	}
	return p.ResponseWriter.Write(b)
}

// FlushError lets the content be flushed.
func (p *contentWriter) FlushError() error {
	if !p.began {
		return nil
	}
	return http.NewResponseController(p.ResponseWriter).Flush()
}
