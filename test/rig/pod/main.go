//go:build linux

// Command pod is the only program of the images that the rig makes, and the first process of the rig's nodes.
package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const account = "/var/run/secrets/kubernetes.io/serviceaccount/"

func main() {
	if filepath.Base(os.Args[0]) == "tar" { // by which kubectl cp moves files
		if err := runTar(os.Args[1:], os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		return
	}
	args := append(os.Args[1:], "pause")
	what, args := args[0], args[1:max(1, len(args)-1)]
	if err := run(what, args); err != nil {
		fmt.Fprintln(os.Stderr, "pod:", err)
		os.Exit(1)
	}
}

func run(what string, args []string) error {
	switch what {
	case "pause": // the sandbox of a pod, and a container that does nothing
		awaitEnd()
	case "init": // the first process of a node: the kernel ends all others of its namespace with it
		reap()
	case "serve": // serve ADDRESS: who answers, and what is in its files and environment
		return serve(args[0])
	case "get": // get URL: what a web server answers
		return get(&http.Client{Timeout: 5 * time.Second}, args[0], "")
	case "probe": // probe URL REQUESTS FAILED: requests it until it is killed, and counts in those files
		return probe(args[0], args[1], args[2])
	case "api": // api PATH...: what the API server of the environment answers to the account of the pod
		return askAPI(args)
	case "cat":
		for _, name := range args {
			data, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			os.Stdout.Write(data)
		}
	case "until": // until TEXT FILE...: waits until that is in every file
		return awaitText(args[0], args[1:])
	case "copy": // its input is its output, for exec and attach
		_, err := io.Copy(os.Stdout, os.Stdin)
		return err
	case "echo":
		fmt.Println(strings.Join(args, " "))
	case "env":
		fmt.Println(strings.Join(os.Environ(), "\n"))
	case "fail":
		return fmt.Errorf("%s", strings.Join(args, " "))
	default:
		return fmt.Errorf("%q: want pause, init, serve, get, probe, api, cat, until, copy, echo, env or fail", what)
	}
	return nil
}

// awaitText waits for a minute: asking again from outside takes a program of 80 MB each time.
func awaitText(text string, files []string) error {
	read := ""
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		there := true
		read = ""
		for _, name := range files {
			data, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			read += fmt.Sprintf("%s: %q\n", name, data)
			there = there && string(data) == text
		}
		if there {
			return nil
		}
	}
	return fmt.Errorf("the files hold\n%s", read)
}

func awaitEnd() {
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGTERM, syscall.SIGINT)
	<-end
}

// reap waits for the processes that no other goroutine waits for.
func reap() {
	children := make(chan os.Signal, 1)
	signal.Notify(children, syscall.SIGCHLD)
	for range children {
		for {
			if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); pid <= 0 || err != nil {
				break
			}
		}
	}
}

func serve(address string) error {
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	http.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, host) })
	http.HandleFunc("/file/", func(w http.ResponseWriter, r *http.Request) {
		http.ServeFile(w, r, strings.TrimPrefix(r.URL.Path, "/file"))
	})
	http.HandleFunc("/env", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, strings.Join(os.Environ(), "\n"))
	})
	fmt.Println("serving on", address)
	go awaitLines()
	failed := make(chan error, 1)
	go func() { failed <- http.ListenAndServe(address, nil) }()
	go func() { awaitEnd(); failed <- nil }()
	return <-failed
}

// awaitLines answers what is written to the container's input, for attach.
func awaitLines() {
	data := make([]byte, 1024)
	for {
		n, err := os.Stdin.Read(data)
		if err != nil {
			return
		}
		fmt.Printf("read %s\n", strings.TrimSpace(string(data[:n])))
	}
}

func get(client *http.Client, url, token string) error {
	request, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	data, err := io.ReadAll(io.LimitReader(response.Body, 200))
	fmt.Printf("%d %s\n", response.StatusCode, strings.Join(strings.Fields(string(data)), " "))
	return err
}

func askAPI(paths []string) error {
	token, err := os.ReadFile(account + "token")
	if err != nil {
		return err
	}
	ca, err := os.ReadFile(account + "ca.crt")
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	client := &http.Client{
		Timeout:   5 * time.Second,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}},
	}
	base := "https://" + net.JoinHostPort(os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT"))
	for _, path := range paths {
		if err := get(client, base+path, string(token)); err != nil {
			return err
		}
	}
	return nil
}
