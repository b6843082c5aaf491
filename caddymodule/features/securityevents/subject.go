package securityevents

import (
	"encoding/json"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/relyingparty"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/strictjson"
)

// subject is whom an event is about: a sub or an address, a session, or a person's session.
type subject struct{ sub, email, session string }

// identifier is a subject identifier (RFC 9493 §3).
type identifier struct {
	Format  string      `json:"format"`
	Issuer  string      `json:"iss"`
	Subject string      `json:"sub"`
	ID      string      `json:"id"`
	Email   string      `json:"email"`
	User    *identifier `json:"user"`
	Session *identifier `json:"session"`
}

const maxIdentifier = 255 // bytes (OpenID Connect Core §2)

// subjectOf returns whom a provider's event is about, or an [relyingparty.EventError].
func subjectOf(e *relyingparty.SecurityEvent, issuer string) (of subject, err error) {
	if len(e.SubjectID) == 0 {
		return (&identifier{Format: "opaque", ID: e.Subject}).simple(issuer)
	}
	var id identifier
	if err := strictjson.Unmarshal(json.RawMessage(e.SubjectID), &id); err != nil {
		return of, relyingparty.InvalidEvent("sub_id: %w", err)
	}
	if id.Format != "complex" {
		return id.simple(issuer)
	}
	if id.User == nil && id.Session == nil {
		return of, relyingparty.InvalidEvent("sub_id has neither user nor session")
	}
	if id.User != nil {
		of, err = id.User.simple(issuer)
	}
	if id.Session != nil && err == nil {
		var session subject
		session, err = id.Session.simple(issuer)
		if of.session = session.sub; err == nil && id.Session.Format != "opaque" {
			err = relyingparty.InvalidEvent("session of sub_id has the format %.100q", id.Session.Format)
		}
	}
	return of, err
}

// simple reads an identifier of one thing. A subject of another issuer is nobody here.
func (id *identifier) simple(issuer string) (of subject, err error) {
	switch id.Format {
	case "iss_sub":
		if id.Issuer != issuer {
			return of, relyingparty.InvalidEvent("iss of sub_id is %.200q", id.Issuer)
		}
		of.sub = id.Subject
	case "opaque":
		of.sub = id.ID
	case "email":
		of.email = id.Email
	default:
		return of, relyingparty.InvalidEvent("sub_id has the format %.100q", id.Format)
	}
	if value := of.sub + of.email; value == "" || len(value) > maxIdentifier {
		return subject{}, relyingparty.InvalidEvent("%s in the subject has %d bytes", id.Format, len(value))
	}
	return of, nil
}
