// Linear regression: gradients are summed with MPI_Allreduce. Compiled with mpicc by the test.
#include <fcntl.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <unistd.h>

#define STEPS 12
#define WAITS_AT 4

int main(int argc, char **argv) {
    int rank, size, step = 0;
    double weight = 0.0, gradient, sum;
    char alive[32];
    snprintf(alive, sizeof alive, "rank-%s", getenv("OMPI_COMM_WORLD_RANK"));
    int lock = open(alive, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);  // locked as long as the process lives
    if (flock(lock, LOCK_EX | LOCK_NB) != 0) creat("doubled", 0644);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    FILE *file = fopen("checkpoint", "r");
    if (file) {
        if (fscanf(file, "%d\n%lf", &step, &weight) != 2) return 3;
        fclose(file);
    }
    while (step < STEPS) {
        double x = 1.0 + 0.1 * ((rank + step) % 5);
        gradient = 2 * x * (weight * x - 3 * x);
        MPI_Allreduce(&gradient, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        weight -= 0.05 * sum / size;
        step++;
        if (rank == 0) {
            file = fopen("checkpoint.new", "w");
            fprintf(file, "%d\n%.9f", step, weight);
            fclose(file);
            rename("checkpoint.new", "checkpoint");
        }
        printf("rank %d step %d loss %.4f\n", rank, step, (weight - 3) * (weight - 3));
        fflush(stdout);
        usleep(30000);
        while (step >= WAITS_AT && access("closed", F_OK) == 0) usleep(20000);
    }
    if (rank == 0) {
        char path[4096];
        snprintf(path, sizeof path, "%s/model", getenv("TRAINING_OUTPUT_DIR"));
        file = fopen(path, "w");
        fprintf(file, "%.9f", weight);
        fclose(file);
    }
    printf("rank %d is done\n", rank);
    MPI_Finalize();
    return 0;
}
