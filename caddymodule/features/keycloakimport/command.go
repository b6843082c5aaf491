package keycloakimport

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/spf13/cobra"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/command"
)

func init() { command.RegisterConverter(convertKeycloakCommand) }

func convertKeycloakCommand() *cobra.Command {
	var issuer string
	cmd := &cobra.Command{
		Use:   "keycloak --issuer <url> <realm.json>",
		Short: "Converts a Keycloak realm export",
		Long: `
Prints the fhir global option of a Caddyfile with the users and clients of a realm:
argon2id password hashes, authenticator apps, redirect and logout URIs,
scopes, secrets, keys, required PKCE, PAR and request objects, and lifetimes.

Clients and users that would be less protected than at Keycloak, or that this server
rejects, are omitted. A summary on stderr, and comments in the Caddyfile, list what
was omitted or changed, and why. Review them before using the Caddyfile.

While Keycloak is stopped, export the realm including users and secrets:

	kc.sh export --realm <name> --users same_file --file realm.json

--issuer
    The address of this server, such as https://fhir.hospital.example.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return convertKeycloak(cmd.OutOrStdout(), cmd.ErrOrStderr(), args[0], issuer)
		},
	}
	cmd.Flags().StringVar(&issuer, "issuer", "", "address of this server")
	return cmd
}

// convertKeycloak prints the fhir block for a realm, followed by a summary of omissions and changes.
func convertKeycloak(out, summaryOut io.Writer, file, issuer string) error {
	if err := authorize.CheckIssuer(issuer); err != nil {
		return fmt.Errorf("--issuer: %w", err)
	}
	export, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	caddyfile, summary, err := Convert(export, issuer, checkCaddyfile)
	if err != nil {
		return fmt.Errorf("converting %s: %w", file, err)
	}
	_, err = io.WriteString(out, caddyfile)
	for _, line := range summary {
		_, writeErr := fmt.Fprintln(summaryOut, line)
		err = errors.Join(err, writeErr)
	}
	return err
}

// checkCaddyfile returns an error if text is not a valid Caddyfile.
func checkCaddyfile(text string) error {
	adapter := caddyfile.Adapter{ServerType: httpcaddyfile.ServerType{}}
	_, _, err := adapter.Adapt([]byte(text), nil)
	return err
}
