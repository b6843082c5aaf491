package fhirapp

import (
	"fmt"
	"sync"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/fhirerror"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/requester"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/modules/stores"
)

func (a *App) serverConfig() (_ authorize.Config, err error) {
	c := a.settings()
	c.Passwords, c.Keys, c.Store, c.Durable = Passwords{}, a.keys, a.stores.Store, a.stores.Durable
	if c.Branding, err = a.Branding.resolved(); err != nil {
		return c, err
	}
	if err := a.resolve(&c); err != nil {
		return c, err
	}
	return c, loadFeatures(a, &c)
}

// resolve replaces the placeholders of secrets in copies: the configuration that Caddy shows and saves keeps them.
func (a *App) resolve(c *authorize.Config) error {
	for _, u := range a.Users {
		user, err := u.resolved(a.logger)
		if err != nil {
			return fmt.Errorf("user %q: %w", u.Name, err)
		}
		c.Users = append(c.Users, user)
	}
	for _, configured := range a.Clients {
		client, err := configured.resolved()
		if err != nil {
			return fmt.Errorf("client %q: %w", configured.ID, err)
		}
		c.Clients = append(c.Clients, client)
	}
	for _, p := range a.IdentityProviders {
		provider, err := p.resolved()
		if err != nil {
			return fmt.Errorf("idp %q: %w", p.Key, err)
		}
		c.IdentityProviders = append(c.IdentityProviders, provider)
	}
	return nil
}

// settings is the server's configuration without secrets.
func (a *App) settings() authorize.Config {
	return authorize.Config{
		Issuer: a.Issuer, FHIRBasePath: a.FHIRBase, ScopeLimits: a.ScopeLimits,
		AccessTokenLifetime: time.Duration(a.AccessTokenLifetime),
		SessionLifetime:     time.Duration(a.SessionLifetime),
		SessionIdle:         time.Duration(a.SessionIdle),

		RefreshTokenLifetime:     time.Duration(a.RefreshTokenLifetime),
		RefreshTokenIdleLifetime: time.Duration(a.RefreshTokenIdleLifetime),
		RefreshTokenGrace:        time.Duration(a.RefreshTokenGrace),
		Outages:                  func() []store.Outage { return outages(a.stores) },

		AuthorizePOST: a.AuthorizePOST, FrameAncestors: a.FrameAncestors, Records: &ownRecords{a.Issuer, a.FHIRBase},
		Lockout: a.Lockout.settings(), Audit: a.Audit, ClientAddress: requester.Address,
		IsHTTPS: requester.IsHTTPS, Logger: fhirerror.Limit(a.logger),
	}
}

// processStart is when the first configuration of this process started.
var processStart = sync.OnceValue(time.Now)

// outages returns when this gateway last could not answer: before this process began, and while a store elsewhere was away.
func outages(s *stores.Set) []store.Outage {
	return append([]store.Outage{{Over: processStart()}}, s.Outages()...)
}
