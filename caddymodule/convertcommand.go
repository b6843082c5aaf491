package caddymodule

import (
	"fmt"
	"io"
	"os"

	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	"github.com/spf13/cobra"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/keycloakrealm"
)

func init() {
	caddycmd.RegisterCommand(caddycmd.Command{
		Name:  "fhir-convert",
		Usage: "keycloak --issuer <url> <realm.json>",
		Short: "Converts the people and apps of another authorization server",
		CobraFunc: func(cmd *cobra.Command) {
			cmd.AddCommand(convertKeycloakCommand())
		},
	})
}

func convertKeycloakCommand() *cobra.Command {
	var issuer string
	cmd := &cobra.Command{
		Use:   "keycloak --issuer <url> <realm.json>",
		Short: "Converts a realm that Keycloak exported",
		Long: `
Prints the fhir global option of a Caddyfile with the people and apps of a realm:
passwords whose hashes are argon2id, authenticator apps, redirect and logout URIs,
scopes, secrets. A comment says what was not taken over, and why. Read it before
you use it.

Export the realm with its people, and with secrets, while Keycloak is stopped:

	kc.sh export --realm <name> --users same_file --file realm.json

--issuer
    The address of this server, such as https://fhir.hospital.example.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return convertKeycloak(cmd.OutOrStdout(), args[0], issuer)
		},
	}
	cmd.Flags().StringVar(&issuer, "issuer", "", "address of this server")
	return cmd
}

// convertKeycloak prints what a file's realm is here.
func convertKeycloak(out io.Writer, file, issuer string) error {
	if err := authorize.CheckIssuer(issuer); err != nil {
		return fmt.Errorf("--issuer: %w", err)
	}
	export, err := os.ReadFile(file)
	if err == nil {
		var converted string
		if converted, err = keycloakrealm.Convert(export, issuer); err == nil {
			_, err = io.WriteString(out, converted)
		}
	}
	if err != nil {
		return fmt.Errorf("converting %s: %w", file, err)
	}
	return nil
}
