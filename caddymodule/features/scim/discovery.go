package scim

import (
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/http"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

//go:embed discovery.json
var discoveryJSON []byte

// discovery contains the resources that describe the service (RFC 7644 §4), by endpoint.
var discovery = parseDiscovery()

func parseDiscovery() (resources map[string][]map[string]any) {
	if err := json.Unmarshal(discoveryJSON, &resources); err != nil {
		panic("scim: discovery.json is invalid: " + err.Error())
	}
	return resources
}

// serveDiscovery returns the ServiceProviderConfig, or one or all of the ResourceTypes or Schemas.
func (s *service) serveDiscovery(w http.ResponseWriter, resource, id string) error {
	all := []any{}
	for _, described := range discovery[resource] {
		own, _ := described["id"].(string)
		described = maps.Clone(described)
		described["meta"] = map[string]string{
			"resourceType": strings.TrimSuffix(resource, "s"), "location": strings.TrimSuffix(s.location(resource, own), "/"),
		}
		if own == id {
			s.write(w, http.StatusOK, described)
			return nil
		}
		all = append(all, described)
	}
	if id != "" {
		return &oauth2.Error{Code: "invalid_request", Description: "unknown resource type or schema", Status: http.StatusNotFound}
	}
	s.writeList(w, all, 1, len(all))
	return nil
}

// serveGroups accepts Groups and stores nothing, because the groups of a person come with each sign-in. Providers treat
// rejected Groups as failures: Entra ID then provisions everything less often, including deactivations, and Okta stops pushing
// the group. The id of a Group is its name.
func (s *service) serveGroups(w http.ResponseWriter, r *http.Request, id string) error {
	name, err := base64.RawURLEncoding.DecodeString(id)
	switch {
	case id == "" && r.Method == http.MethodGet:
		s.writeList(w, []any{}, 1, 0)
	case id == "" && r.Method == http.MethodPost:
		return s.createGroup(w, r)
	case id == "" || r.Method == http.MethodPost:
		return errMethod
	case err != nil:
		return &oauth2.Error{Code: "invalid_request", Description: "group not found", Status: http.StatusNotFound}
	case r.Method == http.MethodDelete || r.Method == http.MethodPatch:
		w.WriteHeader(http.StatusNoContent)
	default:
		s.write(w, http.StatusOK, s.newGroup(string(name)))
	}
	return nil
}

func (s *service) createGroup(w http.ResponseWriter, r *http.Request) error {
	group, err := readUser(w, r)
	if err != nil {
		return err
	}
	if group.DisplayName == "" || len(group.DisplayName) > maxName {
		return invalidValue("displayName is missing or too long")
	}
	s.write(w, http.StatusCreated, s.newGroup(group.DisplayName))
	return nil
}

func (s *service) newGroup(name string) any {
	id := base64.RawURLEncoding.EncodeToString([]byte(name))
	return map[string]any{
		"schemas": []string{groupSchema}, "id": id, "displayName": name, "members": []any{},
		"meta": map[string]string{"resourceType": "Group", "location": s.location("Groups", id)},
	}
}
