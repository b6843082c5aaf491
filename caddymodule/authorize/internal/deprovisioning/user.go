package deprovisioning

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"
)

// SCIM's schemas (RFC 7643 §8.7, RFC 7644 §3).
const (
	userSchema   = "urn:ietf:params:scim:schemas:core:2.0:User"
	configSchema = "urn:ietf:params:scim:schemas:core:2.0:ServiceProviderConfig"
	listSchema   = "urn:ietf:params:scim:api:messages:2.0:ListResponse"
	errorSchema  = "urn:ietf:params:scim:api:messages:2.0:Error"
)

// names are what a provider calls a person. The id of a User holds them, since nothing of it is stored.
type names struct{ externalID, userName string }

const maxName = 255 // bytes

func (n names) check() error {
	if n == (names{}) || len(n.externalID) > maxName || len(n.userName) > maxName || strings.ContainsRune(n.externalID+n.userName, 0) {
		return invalidValue("userName or externalId is missing, too long or malformed")
	}
	return nil
}

func (n names) id() string {
	return base64.RawURLEncoding.EncodeToString([]byte(n.externalID + "\x00" + n.userName))
}

// parseID reads an id that names.id made.
func parseID(id string) (n names, err error) {
	text, err := base64.RawURLEncoding.DecodeString(id)
	externalID, userName, ok := strings.Cut(string(text), "\x00")
	if n = (names{externalID, userName}); err != nil || !ok || n.check() != nil {
		return n, &scimError{status: http.StatusNotFound, detail: "no such user"}
	}
	return n, nil
}

// user is a User (RFC 7643 §4.1).
type user struct {
	Schemas    []string `json:"schemas"`
	ID         string   `json:"id"`
	ExternalID string   `json:"externalId,omitempty"`
	UserName   string   `json:"userName"`
	Active     bool     `json:"active"`
	Meta       userMeta `json:"meta"`
}

type userMeta struct {
	ResourceType string `json:"resourceType"`
	Location     string `json:"location"`
}

// sentUser is a User as a provider sends it. The rest of it has no effect.
type sentUser struct {
	ExternalID string          `json:"externalId"`
	UserName   string          `json:"userName"`
	Active     json.RawMessage `json:"active"`
}

// patch is a PATCH (RFC 7644 §3.5.2).
type patch struct {
	Operations []struct {
		Op    string          `json:"op"`
		Path  string          `json:"path"`
		Value json.RawMessage `json:"value"`
	} `json:"Operations"`
}

// deactivates reports whether a PATCH ends with active being false. Okta names the attribute in the value, Entra ID in
// the path.
func (p patch) deactivates() (bool, error) {
	var last json.RawMessage
	for _, operation := range p.Operations {
		switch op := strings.ToLower(operation.Op); {
		case op == "remove":
		case op != "add" && op != "replace":
			return false, &scimError{status: http.StatusBadRequest, kind: "invalidSyntax", detail: "op is none of add, replace and remove"}
		case isActive(operation.Path):
			last = operation.Value
		case operation.Path == "":
			var members map[string]json.RawMessage
			if err := json.Unmarshal(operation.Value, &members); err != nil {
				return false, invalidValue("value must be an object where there is no path")
			}
			for name, value := range members {
				if isActive(name) {
					last = value
				}
			}
		}
	}
	return isFalse(last)
}

func isActive(attribute string) bool {
	return strings.EqualFold(attribute, "active") || strings.EqualFold(attribute, userSchema+":active")
}

// isFalse reads a boolean, if there is one. Entra ID has sent it as "False".
func isFalse(active json.RawMessage) (bool, error) {
	switch strings.ToLower(strings.Trim(string(active), `"`)) {
	case "", "true":
		return false, nil
	case "false":
		return true, nil
	}
	return false, invalidValue("active must be true or false")
}
