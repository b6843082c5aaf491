package sample

import (
	"encoding/base64"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
)

// readVersion handles read and vread.
func readVersion(s *Store, q request) (reply, error) {
	v, err := s.find(q.reference(), q.VersionID)
	if err != nil {
		return reply{}, err
	}
	if q.header.Get("If-None-Match") == v.etag() {
		return reply{status: http.StatusNotModified, header: http.Header{"Etag": {v.etag()}}}, nil
	}
	if v.reference.Type == "Binary" && !strings.Contains(q.header.Get("Accept")+parameterValue(q.Parameters, "_format"), "json") {
		return v.content()
	}
	return v.reply(http.StatusOK), nil
}

// find returns a version of a resource. If id is "", it returns the latest version.
func (s *Store) find(of interaction.Reference, id string) (*version, error) {
	all := s.versions[of]
	n := len(all)
	if id != "" {
		var err error
		if n, err = strconv.Atoi(id); err != nil || strconv.Itoa(n) != id {
			n = 0
		}
	}
	if n < 1 || n > len(all) {
		return nil, requestFailure{http.StatusNotFound, "not-found", "The resource, or this version of it, does not exist."}
	}
	if all[n-1].text == nil {
		return nil, requestFailure{http.StatusGone, "deleted", "The resource was deleted."}
	}
	return all[n-1], nil
}

// reply returns a response that contains the version.
func (v *version) reply(status int) reply {
	response := newReply(status, v.text)
	response.header.Set("Etag", v.etag())
	response.header.Set("Last-Modified", v.updatedAt.UTC().Format(http.TimeFormat))
	return response
}

// content returns the content of a Binary (R4 binary.html#rest). Browsers must not execute it, whatever its media type is.
func (v *version) content() (reply, error) {
	contentType, _ := v.Member("contentType")
	data, _ := v.Member("data")
	content, err := base64.StdEncoding.DecodeString(resource.Text(data))
	if err != nil {
		return reply{}, requestFailure{http.StatusInternalServerError, "structure", "The data of the Binary is not valid base64."}
	}
	response := v.reply(http.StatusOK)
	response.header.Set("Content-Type", resource.Text(contentType))
	response.header.Set("Content-Security-Policy", "default-src 'none'; sandbox")
	response.body = content
	return response, nil
}

// handleHistory returns the versions of a resource, latest first.
func handleHistory(s *Store, q request) (reply, error) {
	if err := q.checkParameters("_count"); err != nil {
		return reply{}, err
	}
	all := s.versions[q.reference()]
	if len(all) == 0 {
		return reply{}, requestFailure{http.StatusNotFound, "not-found", "The resource does not exist."}
	}
	b := bundle{Type: "history", path: q.Path()}
	for _, v := range slices.Backward(all) {
		b.entries = append(b.entries, entry{version: v})
	}
	return b.buildPage(q, q.Parameters)
}

// forEachResource calls do for each resource of the given types. It stops if do returns an error.
func (s *Store) forEachResource(q request, types []string, do func(*version) error) error {
	seen := 0
	for _, t := range types {
		for _, of := range s.order[t] {
			if seen++; seen%256 == 0 && q.cancellationError() != nil {
				return q.cancellationError()
			}
			if v, ok := s.current(of); ok {
				if err := do(v); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
