package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/caddy-fhir/caddy-fhir/e2e/loopback"
)

// folder contains this command, and out is the folder for its output.
const (
	folder = "validator"
	out    = "out/validator"
)

// errMissing is returned if a dependency is not available, so no resource can be validated.
var errMissing = errors.New("cannot be had")

func main() {
	wrong, err := run()
	switch {
	case errors.Is(err, errMissing):
		fmt.Println(err)
		os.Exit(77)
	case err != nil:
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	case wrong > 0:
		fmt.Printf("%d files judged otherwise than expected; what was said of them is in %s\n", wrong, out)
		os.Exit(1)
	}
}

// run validates all resources and returns the number of resources with unexpected messages.
func run() (wrong int, err error) {
	started := time.Now()
	if err := errors.Join(os.RemoveAll(out), os.MkdirAll(out, 0o755)); err != nil {
		return 0, err
	}
	classpath, err := dependencies()
	if err != nil {
		return 0, err
	}
	address, err := loopback.FreeAddress()
	if err != nil {
		return 0, err
	}
	home, err := makeHome("http://" + address)
	defer os.RemoveAll(home)
	if err != nil {
		return 0, err
	}
	gateway, err := startGateway(address)
	if err != nil {
		return 0, err
	}
	defer gateway.stop()
	files, err := resources()
	if err != nil {
		return 0, err
	}
	prepared := time.Since(started)
	if err := validate(classpath, home, gateway, files); err != nil {
		return 0, err
	}
	wrong, err = compare(files, gateway)
	fmt.Printf("prepared in %.0f s, validated in %.0f s\n", prepared.Seconds(), (time.Since(started) - prepared).Seconds())
	return wrong, err
}

// dependencies returns the class path of the validator. Maven downloads missing artifacts.
func dependencies() (classpath string, err error) {
	for _, command := range []string{"java", "mvn"} {
		if _, err := exec.LookPath(command); err != nil {
			return "", errors.Join(errMissing, err)
		}
	}
	list, err := filepath.Abs(filepath.Join(out, "classpath"))
	if err != nil {
		return "", err
	}
	command := exec.Command("mvn", "-q", "-B", "dependency:build-classpath", "-Dmdep.outputFile="+list)
	command.Dir = folder
	if output, err := command.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: mvn: %w\n%s", errMissing, err, output)
	}
	text, err := os.ReadFile(list)
	return strings.TrimSpace(string(text)), err
}

// resources returns the paths of the resources. They are absolute, because the validator requires that.
func resources() ([]string, error) {
	folder, err := filepath.Abs(filepath.Join(folder, "testdata"))
	if err != nil {
		return nil, err
	}
	return filepath.Glob(filepath.Join(folder, "*.json"))
}

// validate runs the validator on the files. The validator writes its messages to answersFile.
func validate(classpath, home string, g *gateway, files []string) error {
	hosts := filepath.Join(home, "hosts") // an empty hosts file: no name resolves
	arguments := append([]string{
		"-Xmx2g", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
		"-Duser.home=" + home, "-Djava.io.tmpdir=" + home, "-Djdk.net.hosts.file=" + hosts,
		"-cp", classpath, filepath.Join(folder, "Main.java"), g.origin + "/fhir/R4", filepath.Join(out, "tx.html"), answersFile,
	}, files...)
	log, err := os.Create(filepath.Join(out, "validator.log"))
	if err != nil {
		return err
	}
	defer log.Close()
	command := exec.Command("java", arguments...)
	command.Stdout, command.Stderr = log, log
	if err := errors.Join(os.WriteFile(hosts, nil, 0o600), command.Run()); err != nil {
		return fmt.Errorf("the validator: %w; %s says why", err, log.Name())
	}
	return nil
}
