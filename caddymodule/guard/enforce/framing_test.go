package enforce_test

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/enforce"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/access"
)

// site is a gateway, a proxy and a FHIR server that communicate over HTTP.
type site struct {
	*httptest.Server
	g      *gateway
	holder access.Holder
}

// newSite returns a site for a holder's token, over HTTP/2 or HTTP/1.1. The gateway writes errors like Caddy.
func newSite(t *testing.T, h access.Holder, http2 bool, backend http.HandlerFunc) *site {
	t.Helper()
	behind := httptest.NewUnstartedServer(backend)
	behind.Config.ErrorLog = log.New(io.Discard, "", 0)
	behind.Start()
	t.Cleanup(behind.Close)
	target, err := url.Parse(behind.URL)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.ErrorLog = log.New(io.Discard, "", 0)
	return newSiteBefore(t, h, http2, handler(func(w http.ResponseWriter, r *http.Request) error {
		proxy.ServeHTTP(w, r)
		return nil
	}))
}

// newSiteBefore is like newSite, but with the given proxy.
func newSiteBefore(t *testing.T, h access.Holder, http2 bool, proxy handler) *site {
	t.Helper()
	s := &site{g: newGateway(t), holder: h}
	front := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		err := s.g.Serve(w, r, proxy, enforce.Bearer{Rights: access.New(s.holder, s.g.TypeRules)})
		if refusal, ok := errors.AsType[*guard.Error](err); ok {
			text := fmt.Sprintf(`{"resourceType":"OperationOutcome","issue":[{"diagnostics":%q}]}`, refusal.Description)
			w.Header().Set("Content-Type", "application/fhir+json")
			w.Header().Set("Content-Length", strconv.Itoa(len(text)))
			w.WriteHeader(refusal.Status)
			_, _ = io.WriteString(w, text)
		}
	}))
	front.Config.ErrorLog = log.New(io.Discard, "", 0)
	if front.EnableHTTP2 = http2; http2 {
		front.TLS = &tls.Config{MinVersion: tls.VersionTLS13}
		front.StartTLS()
	} else {
		front.Start()
	}
	t.Cleanup(front.Close)
	s.Server = front
	return s
}

// send sends a request and reads the complete response.
func (s *site) send(t *testing.T, method, target string, body string) (*http.Response, []byte, error) {
	t.Helper()
	target = strings.TrimPrefix(target, s.g.BaseURL+"/")
	request, err := http.NewRequestWithContext(t.Context(), method, s.URL+"/fhir/R4/"+target, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Accept-Encoding", "identity") // prevents the client from decompressing
	if body != "" {
		request.Header.Set("Content-Type", "application/fhir+json")
	}
	client := s.Client()
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	response, err := client.Do(request)
	if err != nil {
		return nil, nil, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return response, text, err
}

// For each status, method and encoding, the client gets either the FHIR server's complete response, or a complete error without
// the FHIR server's headers.
func TestFraming(t *testing.T) {
	t.Parallel()
	bodies := map[string]string{
		"empty":        "",
		"resource":     `{"resourceType":"Observation","id":"a1","subject":{"reference":"Patient/a"}}`,
		"page":         `{"resourceType":"Bundle","type":"searchset","link":[{"relation":"self","url":"http://backend.internal/fhir/Observation"},{"relation":"next","url":"http://backend.internal/fhir?_getpages=1"}],"entry":[{"fullUrl":"http://backend.internal/fhir/Observation/a1","resource":{"resourceType":"Observation","id":"a1","subject":{"reference":"Patient/a"}}}]}`,
		"foreign link": `{"resourceType":"Bundle","type":"searchset","link":[{"relation":"next","url":"mailto:x"}]}`,
		"wrong links":  `{"resourceType":"Bundle","link":[1]}`,
		"text":         "Whitelabel Error Page at backend.internal",
		"cut off":      `{"resourceType":"Bundle","type":"searchset","entry":[{"resource":`,
	}
	media := map[string]string{"json": "application/fhir+json", "xml": "application/fhir+xml", "html": "text/html", "turtle": "text/turtle", "none": ""}
	statuses := []int{200, 201, 202, 203, 204, 205, 206, 300, 302, 304, 307, 400, 401, 404, 407, 409, 410, 412, 416, 422, 429, 500, 502, 503}
	type reply struct {
		status                int
		body, media, encoding string
	}
	backend := func(w http.ResponseWriter, r *http.Request) {
		q := r.Header
		status, _ := strconv.Atoi(q.Get("X-Status"))
		text := []byte(compress(t, q.Get("X-Encoding"), bodies[q.Get("X-Body")]))
		header := w.Header()
		header["Content-Type"] = nil
		if m := media[q.Get("X-Media")]; m != "" {
			header.Set("Content-Type", m)
		}
		if e := q.Get("X-Encoding"); e != "" {
			header.Set("Content-Encoding", e)
		}
		for name, value := range map[string]string{
			"Etag": `"1"`, "Digest": "sha-256=x", "Location": "http://files.internal/x", "Set-Cookie": "a=b", "Link": "<http://backend.internal>",
			"X-Backend": "1", "Www-Authenticate": "Basic", "Trailer": "X-Trailer", "Content-Range": "bytes 0-1/2",
		} {
			header.Set(name, value)
		}
		if r.Method != http.MethodHead {
			header.Set("Content-Length", strconv.Itoa(len(text)))
		}
		if status == 204 || status == 304 || status == 205 {
			delete(header, "Content-Length")
			text = nil
		}
		w.WriteHeader(status)
		_, _ = w.Write(text)
	}
	for _, h := range []access.Holder{{Scope: "system/*.cruds"}, patientA} {
		for _, http2 := range []bool{false, true} {
			s := newSite(t, h, http2, backend)
			run := func(method, path string, a reply) {
				name := fmt.Sprintf("HTTP/2 %t, %s: %s %s, %+v", http2, h.Scope, method, path, a)
				request, err := http.NewRequestWithContext(t.Context(), method, s.URL+"/fhir/R4/"+path, nil)
				if err != nil {
					t.Fatal(err)
				}
				for header, value := range map[string]string{"Status": strconv.Itoa(a.status), "Body": a.body, "Media": a.media, "Encoding": a.encoding} {
					request.Header.Set("X-"+header, value)
				}
				request.Header.Set("Accept-Encoding", "identity")
				if method == http.MethodPost || method == http.MethodPut {
					request.Body = io.NopCloser(strings.NewReader(bodies["resource"]))
					request.Header.Set("Content-Type", "application/fhir+json")
				}
				client := s.Client()
				client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
				response, err := client.Do(request)
				if err != nil {
					t.Errorf("%s: %v", name, err)
					return
				}
				text, err := io.ReadAll(response.Body)
				_ = response.Body.Close()
				if err != nil {
					t.Errorf("%s: status %d: %v", name, response.StatusCode, err)
				}
				if all := fmt.Sprint(response.Header) + string(text); strings.Contains(all, ".internal") || strings.Contains(all, "Basic") || response.Header.Get("Set-Cookie") != "" {
					t.Errorf("%s: %s", name, all)
				}
				if declared := response.Header.Get("Content-Length"); method != http.MethodHead && declared != "" && declared != strconv.Itoa(len(text)) {
					t.Errorf("%s: Content-Length %s of %d bytes", name, declared, len(text))
				}
				if response.StatusCode >= 400 && bytes.Contains(text, []byte("OperationOutcome")) && response.Header.Get("X-Backend") != "" {
					t.Errorf("%s: an error with headers of the FHIR server: %v", name, response.Header)
				}
				if method == http.MethodHead && len(text) > 0 {
					t.Errorf("%s: HEAD with a body", name)
				}
			}
			for _, status := range statuses {
				for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodOptions} {
					for body := range bodies {
						run(method, "Observation?patient=a", reply{status: status, body: body, media: "json"})
					}
				}
				for m := range media {
					run(http.MethodGet, "Observation/a1", reply{status: status, body: "text", media: m})
				}
				for _, encoding := range []string{"gzip", "deflate", "br"} {
					run(http.MethodGet, "Observation?patient=a", reply{status: status, body: "page", media: "json", encoding: encoding})
					run(http.MethodHead, "Observation?patient=a", reply{status: status, body: "page", media: "json", encoding: encoding})
				}
				run(http.MethodPost, "Observation", reply{status: status, body: "resource", media: "json"})
				run(http.MethodPut, "Observation/a1", reply{status: status, body: "empty", media: "json"})
				run(http.MethodDelete, "Observation/a1", reply{status: status, body: "empty", media: "none"})
			}
		}
	}
}

// Following page links finds all 120 reports of 400 KB, whether responses pass or are judged, and wherever the FHIR server puts
// its links.
func TestAllPagesOfLargeRecords(t *testing.T) {
	t.Parallel()
	const reports, size = 120, 400 << 10
	filler := strings.Repeat("x", size)
	backend := func(linksLast bool) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			from, _ := strconv.Atoi(r.URL.Query().Get("_getpagesoffset"))
			count, _ := strconv.Atoi(r.URL.Query().Get("_count"))
			to := min(from+count, reports)
			links := fmt.Sprintf(`"link":[{"relation":"self","url":"http://backend.internal/fhir/DiagnosticReport?_count=%d"}`, count)
			if to < reports {
				links += fmt.Sprintf(`,{"relation":"next","url":"http://backend.internal/fhir?_getpages=1&_getpagesoffset=%d&_count=%d"}`, to, count)
			}
			links += "]"
			w.Header().Set("Content-Type", "application/fhir+json")
			_, _ = io.WriteString(w, `{"resourceType":"Bundle","type":"searchset",`)
			if !linksLast {
				_, _ = io.WriteString(w, links+",")
			}
			_, _ = io.WriteString(w, `"entry":[`)
			for n := from; n < to; n++ {
				_, _ = fmt.Fprintf(w, `%s{"fullUrl":"http://backend.internal/fhir/DiagnosticReport/%d","resource":{"resourceType":"DiagnosticReport","id":"%d","subject":{"reference":"Patient/a"},"result":[{"reference":"http://backend.internal/fhir/Observation/a"}],"conclusion":"%s"}}`,
					map[bool]string{true: ","}[n > from], n, n, filler)
			}
			if _, _ = io.WriteString(w, "]"); linksLast {
				_, _ = io.WriteString(w, ","+links)
			}
			_, _ = io.WriteString(w, "}")
		}
	}
	for _, h := range []access.Holder{{Scope: "system/*.rs"}, clinician, patientA} {
		for _, linksLast := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, links last %t", h.Scope, linksLast), func(t *testing.T) {
				t.Parallel()
				s := newSite(t, h, false, backend(linksLast))
				found := map[string]bool{}
				for target, pages := "DiagnosticReport?patient=a&_count=50", 0; target != "" && pages < reports; pages++ {
					response, text, err := s.send(t, http.MethodGet, target, "")
					var b bundle
					if err == nil {
						err = json.Unmarshal(text, &b)
					}
					if err != nil || response.StatusCode != http.StatusOK || bytes.Contains(text, []byte("backend.internal")) {
						t.Fatalf("page %d: %v, %.500s", pages, err, text)
					}
					for _, e := range b.Entry {
						found[e.Resource.ID] = true
					}
					target = b.next()
				}
				if len(found) != reports {
					t.Errorf("%d of %d reports", len(found), reports)
				}
			})
		}
	}
}

// XML returned under unrestricted scopes contains no address of the FHIR server, and its links can be followed.
func TestXMLIsRewritten(t *testing.T) {
	t.Parallel()
	const at = "http://backend.internal:8080/fhir"
	s := newSite(t, access.Holder{Scope: "system/*.rs"}, false, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/fhir+xml")
		next := `<link><relation value="next"/><url value="` + at + `?_getpages=1&amp;_count=1"/></link>`
		if r.URL.Query().Get("_getpages") != "" {
			next = ""
		}
		_, _ = io.WriteString(w, `<?xml version="1.0" encoding="UTF-8"?><Bundle xmlns="http://hl7.org/fhir"><type value="searchset"/>`+
			`<link><relation value="self"/><url value="`+at+`/Observation"/></link>`+next+
			`<entry><fullUrl value="`+at+`/Observation/a1"/><resource><Observation><id value="a1"/><subject><reference value="`+at+`/Patient/a"/></subject></Observation></resource></entry></Bundle>`)
	})
	target := "Observation?_format=xml"
	for page := range 2 {
		response, text, err := s.send(t, http.MethodGet, target, "")
		if err != nil || response.StatusCode != http.StatusOK || bytes.Contains(text, []byte("backend.internal")) || bytes.Contains(text, []byte("_getpages")) ||
			!bytes.Contains(text, []byte(`<reference value="`+s.g.BaseURL+`/Patient/a"/>`)) {
			t.Fatalf("page %d: %v, %s", page, err, text)
		}
		_, rest, _ := strings.Cut(string(text), `<relation value="next"/><url value="`)
		if target, _, _ = strings.Cut(rest, `"`); (target == "") != (page == 1) {
			t.Fatalf("page %d: next %q", page, target)
		}
	}
}

// Under unrestricted scopes, some additional formats may be requested.
func TestFormatsThatPass(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		target, accept, sent string // sent is the Accept header sent to the FHIR server
		status               int
	}{
		{"Observation/a1", "", "", 200},
		{"Observation/a1", ";", "", 200},
		{"Observation/a1", "application/fhir+xml", "application/fhir+xml", 200},
		{"Observation/a1", "text/html, application/xhtml+xml, application/xml;q=0.9, */*;q=0.8", "application/xml;q=0.9, */*;q=0.8", 200},
		{"Observation/a1", "text/turtle", "", 406},
		{"Observation/a1", "text/html", "", 406},
		{"Observation/a1?_format=xml", "text/html", "", 200},
		{"Observation/a1?_format=html/json", "", "", 406},
		{"Observation?_format=ttl", "", "", 406},
		{"Observation/$lastn", "text/csv", "text/csv", 200},
		{"Binary/a1", "application/pdf", "application/pdf", 200},
	} {
		g := newGateway(t)
		r := httptest.NewRequest(http.MethodGet, "/fhir/R4/"+tt.target, nil)
		if tt.accept != "" {
			r.Header.Set("Accept", tt.accept)
		}
		sent := ""
		next := handler(func(w http.ResponseWriter, r *http.Request) error {
			sent = r.Header.Get("Accept")
			w.Header().Set("Content-Type", "application/fhir+json")
			_, err := io.WriteString(w, `{"resourceType":"Observation","id":"a1"}`)
			return err
		})
		w := httptest.NewRecorder()
		err := g.Serve(w, r, next, enforce.Bearer{Rights: access.New(access.Holder{Scope: "system/*.rs"}, g.TypeRules)})
		status := w.Code
		if refusal, ok := errors.AsType[*guard.Error](err); ok {
			status = refusal.Status
		}
		if status != tt.status || sent != tt.sent {
			t.Errorf("%s, %q: %d, the FHIR server got %q", tt.target, tt.accept, status, sent)
		}
	}
}

// A response that fails after its beginning was sent is aborted and does not look complete.
func TestLateFailure(t *testing.T) {
	t.Parallel()
	for _, http2 := range []bool{false, true} {
		s := newSite(t, access.Holder{Scope: "system/*.rs"}, http2, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/fhir+json")
			_, _ = io.WriteString(w, `{"resourceType":"Bundle","entry":[{"resource":{"resourceType":"Basic","text":{"div":"`+strings.Repeat("x", 3<<20)+`"}}}],`)
			_, _ = io.WriteString(w, `"link":[{"relation":"next","url":"mailto:x"}]}`)
		})
		var log bytes.Buffer
		decided := make(chan error, 1)
		s.g.Logger = slog.New(slog.NewTextHandler(&log, nil))
		s.g.OnDecision = func(_ *http.Request, _ enforce.Bearer, d enforce.Decision) { decided <- d.Err }
		response, text, err := s.send(t, http.MethodGet, "Observation", "")
		if err == nil {
			t.Errorf("HTTP/2 %t: status %d, %d bytes as if complete", http2, response.StatusCode, len(text))
		}
		if err := <-decided; err == nil || !strings.Contains(log.String(), "incomplete response aborted") {
			t.Errorf("HTTP/2 %t: decided %v, logged %s", http2, err, &log)
		}
	}
}

// Partial content of a resource is rejected, because addresses in it cannot be rewritten.
func TestPartOfResource(t *testing.T) {
	t.Parallel()
	s := newSite(t, access.Holder{Scope: "system/*.cruds"}, false, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/fhir+json")
		w.WriteHeader(http.StatusPartialContent)
		_, _ = io.WriteString(w, `{"resourceType":"Observation","id":"a1"}`)
	})
	response, text, err := s.send(t, http.MethodGet, "Observation/a1", "")
	if err != nil || response.StatusCode != http.StatusBadGateway || strings.Contains(string(text), `"a1"`) {
		t.Errorf("%v, %s, %v", response, text, err)
	}
}

// Trailers of the FHIR server do not reach the client.
func TestTrailers(t *testing.T) {
	t.Parallel()
	for _, media := range []string{"application/fhir+json", "application/dicom"} {
		s := newSite(t, access.Holder{Scope: "system/*.cruds"}, false, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", media)
			w.Header().Set("Trailer", "X-Announced")
			_, _ = io.WriteString(w, `{"resourceType":"Binary","id":"a1"}`)
			w.Header().Set("X-Announced", "x")
			w.Header().Set(http.TrailerPrefix+"X-Unannounced", "x")
		})
		response, _, err := s.send(t, http.MethodGet, "Binary/a1", "")
		if err != nil || response.StatusCode != http.StatusOK || len(response.Trailer) > 0 {
			t.Errorf("%s: %v, %v", media, response, err)
		}
	}
}

// Under no scope does a response contain an address of the FHIR server.
func TestNoBackendAddress(t *testing.T) {
	t.Parallel()
	const at = "http://backend.internal:8080/fhir"
	observation := `{"resourceType":"Observation","id":"a1","status":"final","subject":{"reference":"Patient/a"},"performer":[{"reference":"` + at + `/Practitioner/alice"}],"note":[{"text":"see ` + at + `/Patient/a"}],"derivedFrom":[{"reference":"http:\/\/backend.internal:8080\/fhir\/Observation\/a2"}],"text":{"div":"<a href=\"` + at + `/Observation/a1\">x</a>"}}`
	entry := `{"fullUrl":"` + at + `/Observation/a1","resource":` + observation + `,"request":{"method":"PUT","url":"` + at + `/Observation/a1"},"response":{"status":"200","location":"` + at + `/Observation/a1/_history/1"}}`
	page := func(kind, path string) string {
		return `{"resourceType":"Bundle","type":"` + kind + `","link":[{"relation":"self","url":"` + at + path + `"}],"entry":[` + entry + `]}`
	}
	answers := map[string]string{
		"GET Observation/a1":            observation,
		"GET Observation/a1/_history/1": observation,
		"GET Observation/a1/_history":   page("history", "/Observation/a1/_history"),
		"GET Observation?patient=a":     page("searchset", "/Observation?patient=a"),
		"GET Patient/a/$everything":     page("searchset", "/Patient/a/$everything"),
		"GET Observation/a1/$meta":      `{"resourceType":"Parameters","parameter":[{"name":"x","valueUrl":"` + at + `/Observation/a1"}]}`,
		"PUT Observation/a1":            observation,
		"POST Observation":              observation,
		"GET metadata":                  `{"resourceType":"CapabilityStatement","implementation":{"description":"x","url":"` + at + `"}}`,
	}
	for _, h := range []access.Holder{clinician, {Scope: "system/*.cruds"}, {Scope: "system/*.rs"}, patientA} {
		g := newGateway(t)
		next := handler(func(w http.ResponseWriter, r *http.Request) error {
			target := strings.TrimPrefix(r.URL.RequestURI(), "/fhir/R4/")
			text, ok := answers[r.Method+" "+target]
			if !ok {
				text = page("searchset", "/Observation?patient=a")
			}
			header := w.Header()
			header.Set("Content-Type", "application/fhir+json")
			header.Set("Content-Location", at+"/"+target)
			header.Set("Etag", `W/"1"`)
			status := http.StatusOK
			if r.Method == http.MethodPost && target == "Observation" {
				status = http.StatusCreated
				header.Set("Location", at+"/Observation/a1/_history/1")
			}
			if r.Method == http.MethodPost && r.URL.Path == "/fhir/R4" {
				text = page("batch-response", "")
				header.Del("Content-Location")
			}
			w.WriteHeader(status)
			_, err := io.WriteString(w, text)
			return err
		})
		for request := range answers {
			method, path, _ := strings.Cut(request, " ")
			body := ""
			if method != http.MethodGet {
				body = strings.ReplaceAll(observation, at+"/", "")
			}
			checkNoBackend(t, g, h, method, path, body, next)
		}
		batch := `{"resourceType":"Bundle","type":"batch","entry":[{"request":{"method":"GET","url":"Observation/a1"}}]}`
		checkNoBackend(t, g, h, http.MethodPost, "", batch, next)
	}
}

func checkNoBackend(t *testing.T, g *gateway, h access.Holder, method, path, body string, next handler) {
	t.Helper()
	r := httptest.NewRequest(method, "/fhir/R4/"+path, strings.NewReader(body))
	if body == "" {
		r.Body = http.NoBody
	}
	r.Header.Set("Content-Type", "application/fhir+json")
	w := httptest.NewRecorder()
	err := g.Serve(w, r, next, enforce.Bearer{Rights: access.New(h, g.TypeRules)})
	if refusal, ok := errors.AsType[*guard.Error](err); ok {
		if refusal.Status != http.StatusForbidden {
			t.Errorf("%s: %s %s: %d %v", h.Scope, method, path, refusal.Status, err)
		}
		return
	}
	if all := fmt.Sprint(w.Header()) + w.Body.String(); err != nil || strings.Contains(all, "backend.internal") {
		t.Errorf("%s: %s %s: %v, %d %s", h.Scope, method, path, err, w.Code, all)
	}
	if text := w.Body.String(); w.Code == http.StatusOK && !json.Valid([]byte(text)) {
		t.Errorf("%s: %s %s: no JSON: %s", h.Scope, method, path, text)
	}
}

// If the Content-Type is not a FHIR format, JSON is rewritten and other text passes. Text that may be a resource in another
// format is rejected.
func TestMislabelled(t *testing.T) {
	t.Parallel()
	const page = `{"resourceType":"Bundle","type":"searchset","link":[{"relation":"self","url":"http://backend.internal/fhir/Observation"}],"entry":[{"fullUrl":"http://backend.internal/fhir/Observation/a1","resource":{"resourceType":"Observation","id":"a1"}}]}`
	for _, tt := range []struct {
		name, media string
		parts       []string
		status      int
		want        string // expected substring of the body
	}{
		{"a page as text", "text/plain", []string{page}, 200, `"fullUrl":"https://gateway.example/fhir/R4/Observation/a1"`},
		{"a page without a type", "", []string{page}, 200, `"fullUrl":"https://gateway.example/fhir/R4/Observation/a1"`},
		{"a page behind white space", "text/plain", []string{"\n ", page}, 200, `"fullUrl":"https://gateway.example/fhir/R4/Observation/a1"`},
		{"text", "text/plain", []string{"Practitioner/alice"}, 200, "Practitioner/alice"},
		{"a file", "application/pdf", []string{"%PDF-1.7"}, 200, "%PDF-1.7"},
		{"HTML", "text/html", []string{"<html>backend.internal</html>"}, 502, "cannot be rewritten"},
		{"XML as text", "text/plain", []string{"<Patient/>"}, 502, "cannot be rewritten"},
		{"text without a type", "", []string{"backend.internal"}, 502, "cannot be rewritten"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, access.Holder{Scope: "system/*.rs"}, false, func(w http.ResponseWriter, _ *http.Request) {
				w.Header()["Content-Type"] = nil
				if tt.media != "" {
					w.Header().Set("Content-Type", tt.media)
				}
				for _, part := range tt.parts {
					_, _ = io.WriteString(w, part)
					_ = http.NewResponseController(w).Flush()
				}
			})
			response, text, err := s.send(t, http.MethodGet, "Observation", "")
			if err != nil {
				t.Fatal(err)
			}
			if response.StatusCode != tt.status || !strings.Contains(string(text), tt.want) || strings.Contains(string(text), ".internal") {
				t.Errorf("%d %s", response.StatusCode, text)
			}
		})
	}
}

// If the FHIR server switches a connection to WebSocket, it carries bytes in both directions under unrestricted scopes. Under
// other scopes the switch is rejected, because the content could not be judged.
func TestWebSocket(t *testing.T) {
	t.Parallel()
	proxy := handler(func(w http.ResponseWriter, r *http.Request) error { // works like Caddy's proxy
		for name, value := range map[string]string{"Connection": "Upgrade", "Upgrade": r.Header.Get("Upgrade"), "Set-Cookie": "a=b"} {
			w.Header().Set(name, value)
		}
		w.WriteHeader(http.StatusSwitchingProtocols)
		conn, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return nil
		}
		defer conn.Close()
		line, _ := buffered.ReadString('\n')
		_, _ = io.WriteString(conn, "heard "+line)
		return nil
	})
	for name, tt := range map[string]struct {
		holder access.Holder
		want   int
	}{
		"unrestricted": {access.Holder{Scope: "system/*.cruds"}, http.StatusSwitchingProtocols},
		"one patient":  {access.Holder{Scope: "patient/*.cruds", Patient: "a"}, http.StatusBadGateway},
		"granular":     {access.Holder{Scope: "system/Observation.rs?category=laboratory"}, http.StatusBadGateway},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSiteBefore(t, tt.holder, false, proxy)
			conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(s.URL, "http://"))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
				t.Fatal(err)
			}
			_, _ = io.WriteString(conn, "GET /fhir/R4/Observation HTTP/1.1\r\nHost: fhir.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
			reader := bufio.NewReader(conn)
			response, err := http.ReadResponse(reader, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			if response.StatusCode != tt.want || response.Header.Get("Set-Cookie") != "" {
				t.Fatalf("status %d, want %d; header %v", response.StatusCode, tt.want, response.Header)
			}
			if tt.want != http.StatusSwitchingProtocols {
				return
			}
			_, _ = io.WriteString(conn, "bind token\n")
			if got, err := io.ReadAll(reader); string(got) != "heard bind token\n" {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
}

// An address that a client put into a resource is never used as the FHIR server's base URL; otherwise, references in other
// records would be rewritten.
func TestBaseOfClients(t *testing.T) {
	t.Parallel()
	const foreign = "https://client.example/r4"
	nested := map[string]string{
		"a nested Bundle": `{"resourceType":"Bundle","id":"1","type":"document","entry":[{"fullUrl":"` + foreign + `/Patient/1","response":{"location":"` + foreign + `/Patient/1"}}]}`,
		"a list of texts": `{"resourceType":"Patient","id":"a","name":[{"given":["fullUrl","` + foreign + `/Patient/1"]}]}`,
	}
	pages := map[string]string{
		"no fullUrl":              `{"resource":@}`,
		"fullUrl behind":          `{"resource":@,"fullUrl":"http://backend.internal/fhir/Patient/a"}`,
		"fullUrl in another form": `{"fullUrl":"urn:uuid:9f2f0f0e-0000-4000-8000-000000000000","resource":@}`,
	}
	for _, h := range []access.Holder{{Scope: "system/*.cruds"}, patientA} {
		for what, resource := range nested {
			for where, entry := range pages {
				s := newSite(t, h, false, func(w http.ResponseWriter, r *http.Request) {
					text := `{"resourceType":"Observation","id":"a1","subject":{"reference":"Patient/a"},"performer":[{"reference":"` + foreign + `/Practitioner/1"}]}`
					if !strings.HasSuffix(r.URL.Path, "/Observation/a1") {
						text = `{"resourceType":"Bundle","type":"searchset","entry":[` + strings.Replace(entry, "@", resource, 1) + `]}`
					}
					w.Header().Set("Content-Type", "application/fhir+json")
					_, _ = w.Write([]byte(text))
				})
				for _, search := range []string{"Bundle", "Patient?family=x", "Patient/a/_history", "Patient/a/$everything"} {
					if _, _, err := s.send(t, http.MethodGet, search, ""); err != nil {
						t.Fatal(err)
					}
				}
				if _, text, err := s.send(t, http.MethodGet, "Observation/a1", ""); err != nil || !strings.Contains(string(text), foreign) {
					t.Errorf("%s: %s, %s: %v, %s", h.Scope, what, where, err, text)
				}
			}
		}
	}
}

// A fullUrl in the response to an operation may come from a client, so it is not used as an address of the FHIR server.
func TestBaseOfOperations(t *testing.T) {
	t.Parallel()
	const foreign = "https://client.example/r4"
	s := newSite(t, access.Holder{Scope: "system/*.cruds"}, false, func(w http.ResponseWriter, r *http.Request) {
		text := `{"resourceType":"Observation","id":"a1","performer":[{"reference":"` + foreign + `/Practitioner/1"}]}`
		if strings.Contains(r.URL.Path, "$") {
			text = `{"resourceType":"Bundle","type":"searchset","entry":[{"fullUrl":"` + foreign + `/Patient/1","resource":{"resourceType":"Patient","id":"1"}}]}`
		}
		w.Header().Set("Content-Type", "application/fhir+json")
		_, _ = w.Write([]byte(text))
	})
	for _, path := range []string{"Patient/a/$everything", "Observation/$lastn", "Observation/a1"} {
		response, text, err := s.send(t, http.MethodGet, path, "")
		if err != nil || response.StatusCode != http.StatusOK {
			t.Fatalf("%s: %v, %v", path, response, err)
		}
		if strings.HasSuffix(path, "a1") && !strings.Contains(string(text), foreign) {
			t.Errorf("rewritten: %s", text)
		}
	}
}

// Errors from the FHIR server contain none of its addresses, even where content of any type passes.
func TestErrorsNameNoBackend(t *testing.T) {
	t.Parallel()
	const at = "http://backend.internal:8080/fhir/Binary/1"
	for _, h := range []access.Holder{{Scope: "system/*.cruds"}, clinician, patientA} {
		for _, path := range []string{"Binary/1", "Binary/1/_history/1", "Binary/1?_format=image/png", "Patient/a", "Patient?family=x", "Patient/a/$everything", "Observation/$lastn", "Observation/a1/$meta"} {
			for media, text := range map[string]string{
				"text/html": "<p>" + at, "text/plain": at, "application/octet-stream": at,
				"application/json":     `{"error":"x","path":"x ` + at + `"}`,
				"application/fhir+xml": `<OperationOutcome><issue><diagnostics value="x ` + at + `"/></issue></OperationOutcome>`,
			} {
				for _, status := range []int{400, 404, 500, 503} {
					s := newSite(t, h, false, func(w http.ResponseWriter, _ *http.Request) {
						w.Header().Set("Content-Type", media)
						w.Header().Set("Content-Location", at+"/_history/1")
						w.WriteHeader(status)
						_, _ = w.Write([]byte(text))
					})
					if response, got, err := s.send(t, http.MethodGet, path, ""); err != nil || strings.Contains(string(got), "backend.internal") || response.StatusCode < 400 {
						t.Errorf("%s: %s: %d %s: %v, %s", h.Scope, path, status, media, err, got)
					}
				}
			}
		}
	}
}
