package relyingparty

import (
	"time"

	"golang.org/x/oauth2"
)

// Identity is who signed in. Only Issuer and Subject together identify the person
// (OpenID Connect Core §5.7).
type Identity struct {
	Issuer  string // as configured
	Subject string // the sub: up to 255 characters, unique at the issuer

	// Claims are those of the ID token and, where it lacks one, of userinfo. They have the
	// types that were sent, with numbers as json.Number: an email_verified of "true" is
	// still a string.
	Claims map[string]any

	Asked    time.Time // when the provider was asked: what it tells later is about this sign-in too
	IDToken  string    // verified: the hint for [Provider.EndSessionURL]
	AuthTime time.Time // the auth_time, or zero

	Held // for later
}

// Held is what a provider can be asked by again.
type Held struct {
	RefreshToken string    `json:"upstream_refresh_token,omitempty"` // the latest, for [Provider.Refresh]; "" if the provider gave none
	RefreshUntil time.Time `json:"upstream_refresh_until,omitzero"`  // when RefreshToken expires, as far as the provider says so
	Brief        bool      `json:"upstream_brief,omitempty"`         // it ends with the person's session there; another can be had by [AuthenticationRequest].Lasting
	Bound        bool      `json:"upstream_bound,omitempty"`         // it was issued without offline_access: to refresh it may prolong the person's session there
	Introspects  bool      `json:"upstream_introspects,omitempty"`   // the provider introspects it, which prolongs nothing
	AccessToken  string    `json:"upstream_access_token,omitempty"`  // for [Provider.Introspect], where there is no refresh token
	Expires      time.Time `json:"upstream_expires,omitzero"`        // expiry of the access token, where there is no refresh token
}

// heldBy returns the refresh token of a response. Keycloak says how long it is valid (refresh_expires_in, which no standard has).
func heldBy(tokens *oauth2.Token) Held {
	h := Held{RefreshToken: tokens.RefreshToken}
	if seconds, _ := tokens.Extra("refresh_expires_in").(float64); seconds > 0 && h.RefreshToken != "" {
		h.RefreshUntil = time.Now().Add(time.Duration(seconds) * time.Second)
	}
	return h
}
