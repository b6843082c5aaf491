package deprovisioning

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"unicode"
)

// SCIM's schemas (RFC 7643 §8.7, RFC 7644 §3).
const (
	userSchema   = "urn:ietf:params:scim:schemas:core:2.0:User"
	configSchema = "urn:ietf:params:scim:schemas:core:2.0:ServiceProviderConfig"
	listSchema   = "urn:ietf:params:scim:api:messages:2.0:ListResponse"
	errorSchema  = "urn:ietf:params:scim:api:messages:2.0:Error"
)

// names are what a provider calls a person. The id of a User holds them: nothing of it is stored until it is renamed.
type names struct {
	ExternalID string `json:"e,omitempty"`
	UserName   string `json:"u,omitempty"`

	// Subject is the person's at the provider, if they had an account here when they were named so. If not, they are
	// the first to come by the name since Named, in nanoseconds.
	Subject string `json:"s,omitempty"`
	Named   int64  `json:"t,omitempty"`
}

const maxName = 255 // bytes

func (n names) check() error {
	if n.ExternalID+n.UserName == "" || len(n.ExternalID) > maxName || len(n.UserName) > maxName || strings.ContainsFunc(n.ExternalID+n.UserName, unicode.IsControl) {
		return invalidValue("userName or externalId is missing, too long or malformed")
	}
	return nil
}

func (n names) id() string {
	text, _ := json.Marshal(n) // nothing in it fails
	return base64.RawURLEncoding.EncodeToString(text)
}

// parseID reads an id that names.id made.
func parseID(id string) (n names, err error) {
	text, err := base64.RawURLEncoding.DecodeString(id)
	if err != nil || json.Unmarshal(text, &n) != nil || n.check() != nil || n.Subject == "" && n.Named == 0 {
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

// change returns what a PATCH calls the person, and whether it ends with active being false. Okta names attributes in the
// value, Entra ID in the path.
func (p patch) change() (to names, ends bool, err error) {
	set := sentUser{}
	for _, operation := range p.Operations {
		switch op := strings.ToLower(operation.Op); {
		case op == "remove":
		case op != "add" && op != "replace":
			return to, false, &scimError{status: http.StatusBadRequest, kind: "invalidSyntax", detail: "op is none of add, replace and remove"}
		case operation.Path != "":
			err = set.set(operation.Path, operation.Value)
		default:
			var members map[string]json.RawMessage
			if err := json.Unmarshal(operation.Value, &members); err != nil {
				return to, false, invalidValue("value must be an object where there is no path")
			}
			for name, value := range members {
				err = errors.Join(err, set.set(name, value))
			}
		}
		if err != nil {
			return to, false, invalidValue("userName and externalId must be texts")
		}
	}
	to = names{ExternalID: set.ExternalID, UserName: set.UserName}
	if to != (names{}) {
		err = to.check()
	}
	if err == nil {
		ends, err = isFalse(set.Active)
	}
	return to, ends, err
}

func (u *sentUser) set(attribute string, value json.RawMessage) error {
	switch strings.TrimPrefix(strings.ToLower(attribute), strings.ToLower(userSchema)+":") {
	case "active":
		u.Active = value
	case "username":
		return json.Unmarshal(value, &u.UserName)
	case "externalid":
		return json.Unmarshal(value, &u.ExternalID)
	}
	return nil
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
